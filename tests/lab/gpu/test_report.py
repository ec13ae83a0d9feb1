"""The section of a record in a Markdown file."""

from pathlib import Path

import pytest

from lab.gpu import goals
from lab.gpu.record import Record, Series
from lab.gpu.report import losses, write_report


@pytest.fixture
def record() -> Record:
    made = Record("python -m lab.gpu --model m.gguf", ["m.gguf, 8.7 GB"], "m.gguf", 32768, say=lambda _: None)
    made.uses("llama-server", "llama-server -m m.gguf -np 4")
    made.add("decode", "decode, greedy, 8 streams", "tok/s", Series((400.0,)), Series((405.0,)), goals.DECODE[8])
    cold, peer = Series((4000.0, 4100.0), (32768, 32768)), Series((4000.0, 4700.0), (32768, 32768))
    made.add("cold", "cold prompts in a row", "ms", cold, peer, goals.COLD, in_order=True, note="a note")
    made.add("same", "the same prompt again", "ms", Series((30.0,), (1,)), Series((94.0,), (4,)), goals.SAME)
    made.add("exact", "hybrid, full offload", "replies that differ", Series((0.0,)), goal=goals.EXACT)
    return made


def test_the_section_stands_between_its_marks_and_is_replaced(record: Record, tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text("# Benchmarks\n\nBefore.\n")
    write_report(record, page)
    first = page.read_text()
    assert first.startswith("# Benchmarks\n\nBefore.\n\n<!-- bench gpu -->\n\n## On a GPU\n")
    cold = "| cold prompts in a row | 4,000, 4,100 ms | 4,000, 4,700 ms | 1.07x | 32,768 | 32,768 |"
    assert f"{cold} each ≤ 1.05 times llama-server | reached | a note |\n" in first
    assert "| measure | leftoff | goal |  |\n| --- | ---: | --- | --- |\n| hybrid, full offload |" in first
    assert "`llama-server -m m.gguf -np 4`" in first
    write_report(record, page)
    assert page.read_text() == first


def test_plots_lie_beside_the_page(record: Record, tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    write_report(record, page)
    for name in ("decode", "cold", "first-token"):
        file = f"benchmarks/bench-gpu-{name}.svg"
        assert f"![]({file})" in page.read_text()
        assert "<svg" in (tmp_path / file).read_text()
    assert "cold prompts in a row: 2<" in (tmp_path / "benchmarks/bench-gpu-cold.svg").read_text()


def test_it_says_where_leftoff_loses(record: Record) -> None:
    assert losses(record.rows).splitlines()[2:] == [
        "- decode, greedy, 8 streams: 400 tok/s; llama-server is 1.01 times as fast; "
        "the goal was ≥ 1.68 times llama-server.",
        "- the same prompt again: 30 ms; the goal was ≤ 20 ms.",
    ]
