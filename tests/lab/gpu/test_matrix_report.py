"""The matrix in a Markdown file: what is lost stands first."""

from pathlib import Path

from lab.gpu import goals
from lab.gpu.__main__ import main
from lab.gpu.record import Record, Series


def test_the_lost_cells_stand_first_and_the_section_is_replaced(tmp_path: Path) -> None:
    out, page = tmp_path / "out.json", tmp_path / "benchmarks.md"
    page.write_text("# Benchmarks\n\nBefore.\n")
    record = Record("python -m lab.gpu matrix --size 4b", ["a machine"], "4b", 32768, out, say=lambda _: None)
    cold, slower = Series((4000.0, 4000.0), (32768, 32768)), Series((4000.0, 4400.0), (32768, 32768))
    record.add("hybrid", "cold prompts in a row", "ms", cold, slower, goals.median_within(1.03), in_order=True)
    record.add("dense", "cold prompts in a row", "ms", slower, cold, goals.median_within(1.03), in_order=True)
    record.add("dense", "64 new tokens alone", "ms", Series((20.0,), (64,)))
    for _ in range(2):
        assert main(["report", str(out), "--markdown", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("# Benchmarks\n\nBefore.\n\n<!-- bench gpu-matrix -->\n\n## Every kind on a GPU\n")
    assert text.count("bench gpu-matrix -->") == 2
    assert "- dense: cold prompts in a row: 4,000, 4,400 ms; llama-server is 1.05 times as fast; the goal was" in text
    assert "| kind | cold prompts in a row |\n| --- | ---: |\n| hybrid | 1.05x |\n| dense | **0.95x** |\n" in text
    table = text.partition("### Cold prompts in a row\n")[2]
    assert table.index("| dense | 4,000, 4,400 ms |") < table.index("| hybrid | 4,000, 4,000 ms |")
    assert "### 64 new tokens alone\n\n| kind | leftoff | computed by leftoff |\n" in text
