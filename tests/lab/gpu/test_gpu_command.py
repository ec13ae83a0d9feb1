"""`python -m lab.gpu` as people run it, on the CPU with a small model and the llama-server of a wheel."""

import json
from pathlib import Path

import pytest

from lab.gpu.__main__ import main

_LONG = 512


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gpu") / "small.gguf"
    assert main(["model", str(path), "--size", "small"]) == 0
    return path


def test_both_servers_are_started_and_the_figures_are_written(model: Path, tmp_path: Path) -> None:
    out, page = tmp_path / "out.json", tmp_path / "benchmarks.md"
    options = ["--long", str(_LONG), "--threads", "1", "--folder", str(tmp_path), "--json", str(out)]
    assert main(["--model", str(model), "--llama-server", "xllamacpp", *options, "--only", "cold,offload"]) == 0
    cold, memory, offload = json.loads(out.read_text())["rows"]
    for side in ("leftoff", "peer"):
        assert cold[side]["computed"] == [_LONG] * 4
        assert offload[side]["computed"] == [_LONG] * 2
        assert all(value > 0 for row in (cold, offload) for value in row[side]["values"])
    assert 1 < memory["leftoff"]["values"][0] < 1000
    assert main(["report", str(out), "--markdown", str(page)]) == 0
    assert "cold prompts in a row" in page.read_text()
    assert "### Layers in RAM" in page.read_text()


@pytest.mark.parametrize(
    ("options", "way_out"),
    [
        ([], "give --model FILE and --llama-server PROGRAM"),
        (["--model", "no-such.gguf", "--llama-server", "xllamacpp"], "`python -m lab.gpu model FILE` makes one"),
        (["--model", "MODEL", "--llama-server", "no-such-program"], "give its path, or xllamacpp"),
        (["--model", "MODEL", "--llama-server", "xllamacpp", "--only", "cold,warm"], "--only warm"),
        (["--model", "MODEL", "--llama-server", "xllamacpp", "--long", "8"], "at least 512"),
    ],
)
def test_mistakes_are_one_line_with_the_way_out(
    model: Path, options: list[str], way_out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(model) if option == "MODEL" else option for option in options]) == 1
    said = capsys.readouterr().err
    assert way_out in said
    assert said.count("\n") == 1


def test_figures_of_another_length_are_not_mixed(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    out.write_text('{"command": "", "facts": [], "model": "small.gguf", "long": 4096, "commands": {}, "rows": []}')
    options = ["--long", str(_LONG), "--json", str(out)]
    assert main(["--model", str(model), "--llama-server", "xllamacpp", *options]) == 1
    assert "has figures of small.gguf at 4096" in capsys.readouterr().err
