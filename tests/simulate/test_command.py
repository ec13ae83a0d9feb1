"""`leftoff simulate` from the command line."""

import json
from pathlib import Path

import pytest

from leftoff.cli.main import main


def test_the_sample_is_played_when_nothing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--ram", "16,32", "--schemes", "llama-server,optimum", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    results = report["results"]
    assert [(result["scheme"], result["ram_bytes"] >> 30) for result in results] == [
        *(("llama-server", 16), ("optimum", 16), ("llama-server", 32), ("optimum", 32)),
    ]
    assert all(result["computed_tokens"] >= result["unavoidable_tokens"] > 0 for result in results)
    assert results[1]["computed_tokens"] < results[0]["computed_tokens"]


def test_the_table_names_every_scheme(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--ram", "16", "--sessions", "2", "--schemes", "vllm,sglang"]) == 0
    out = capsys.readouterr().out
    assert "2 sessions at a time, 16 GiB of RAM" in out
    assert "vllm" in out
    assert "sglang" in out


def test_a_file_that_is_no_trace_is_named_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text('{"text": "hello"}\n')
    assert main(["simulate", str(path)]) == 1
    assert "notes.jsonl has none of the keys blocks, hash_ids" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--ram", "0"], ["--ram", "8,x"], ["--schemes", "magic"], ["--model", "none"]])
def test_a_wrong_flag_is_refused(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["simulate", *flags])
    assert stopped.value.code == 2
    assert flags[0] in capsys.readouterr().err
