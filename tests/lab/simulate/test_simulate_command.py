"""`python -m lab.simulate` from the command line."""

import json
import lzma
from itertools import islice
from pathlib import Path

import pytest

from lab.simulate.__main__ import main
from lab.simulate.reading import SAMPLE


def test_the_sample_is_played_when_nothing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--ram", "16,32", "--schemes", "llama-server,optimum", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    results = report["results"]
    assert [(result["scheme"], result["ram_bytes"] >> 30) for result in results] == [
        *(("llama-server", 16), ("optimum", 16), ("llama-server", 32), ("optimum", 32)),
    ]
    assert all(result["computed_tokens"] >= result["unavoidable_tokens"] > 0 for result in results)
    assert results[1]["computed_tokens"] < results[0]["computed_tokens"]


def test_the_table_names_every_scheme(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--ram", "16", "--sessions", "2", "--schemes", "vllm,sglang"]) == 0
    out = capsys.readouterr().out
    assert "2 sessions at a time, 16 GiB of RAM" in out
    assert "vllm" in out
    assert "sglang" in out


def test_a_file_that_is_no_trace_is_named_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text('{"text": "hello"}\n')
    assert main([str(path)]) == 1
    assert "notes.jsonl has none of the keys blocks, hash_ids" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--ram", "0"], ["--ram", "8,x"], ["--schemes", "magic"], ["--model", "none"]])
def test_a_wrong_flag_is_refused(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([*flags])
    assert stopped.value.code == 2
    assert flags[0] in capsys.readouterr().err


def test_a_trace_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([str(tmp_path / "none")]) == 1
    assert f"leftoff: TRACE {tmp_path / 'none'}: it cannot be read (No such file" in capsys.readouterr().err


def test_the_table_of_a_simulation_fits_80_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "beginning.jsonl"
    with lzma.open(SAMPLE, "rt") as sample:
        trace.write_text("".join(islice(sample, 150)))
    monkeypatch.setenv("COLUMNS", "80")
    assert main([str(trace), "--ram", "8", "--sessions", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (header,) = (line for line in lines if line.startswith("scheme"))
    assert header.split() == ["scheme", "hits", "read", "over", "least", "TTFT", "p50", "p95"]
    assert any(line.startswith("llama-server-slots ") for line in lines), "no name is cut"
    assert "…" not in "".join(lines)
