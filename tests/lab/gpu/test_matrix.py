"""`python -m lab.gpu matrix` as people run it, on the CPU with small models and the llama-server of a wheel."""

import json
from pathlib import Path

import pytest

from lab.gpu.__main__ import main
from lab.gpu.cells import OPERATIONS
from lab.gpu.record import read_record

_LONG = 512


@pytest.mark.timeout(600)
def test_every_operation_of_a_kind_is_measured_on_both_servers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    options = ["--size", "small", "--long", str(_LONG), "--threads", "1", "--folder", str(tmp_path), "--json", str(out)]
    command = ["matrix", "--llama-server", "xllamacpp", "--rounds", "1", "--rest", "0", *options]
    assert main([*command, "--kinds", "dense", "--long-kinds", "dense", "--longest", "640"]) == 0
    rows = read_record(out).rows
    found = {row.title: row for row in rows if row.part == "dense"}
    assert {title for title, _ in OPERATIONS.values()} <= set(found)
    assert found["cold prompts in a row"].peer.computed == (_LONG,) * 4
    after_kill = found["next turn after kill -9"].leftoff.computed
    assert min(after_kill) == 64, "a busy machine may read some of the others, where that is sooner than to fetch"
    assert len(after_kill) == 4
    from_ram = found["agents in turn, from RAM"]
    assert from_ram.note.startswith("from RAM; ")
    assert from_ram.leftoff.computed == (64,) * 4
    assert all(row.is_reached is not None for row in rows if row.goal)
    assert {row.part for row in rows} == {"dense", "dense, 640 tokens, q8_0 KV"}
    assert not list(tmp_path.glob("*.gguf"))
    capsys.readouterr()
    assert main([*command, "--kinds", "hybrid,mla", "--seconds-left", "0"]) == 1
    assert "LEFT OUT after 0 s: hybrid,mla" in capsys.readouterr().out
    assert len(json.loads(out.read_text())["rows"]) == len(rows)


def test_an_unknown_kind_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["matrix", "--llama-server", "xllamacpp", "--kinds", "dense,sparse"]) == 1
    assert "--kinds sparse: there is no such; give some of hybrid," in capsys.readouterr().err
