"""`leftoff cache` on what a real server has left, and while one runs."""

import json
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from leftoff.cli.main import main
from leftoff.disk.files import UNFINISHED
from tests.cli.here import served
from tests.cli.running import serving
from tests.disk.stores import page, path_of, store_in, written
from tests.factory import model_path
from tests.patience import PATIENCE_S

Capture = pytest.CaptureFixture[str]

HEADER = "You are a careful assistant who answers in few words. " * 12
NO_TEXT = "no text is shown: no server has told where the model file is, or it is no longer there; "
QUESTIONS = ("Where does the river end?", "How high is the mountain?")


def disk(root: Path) -> list[str]:
    return ["--cache-dir", str(root), "--disk", "64"]


def ask(url: str, question: str) -> dict[str, Any]:
    messages = [{"role": "system", "content": HEADER}, {"role": "user", "content": question}]
    answer = httpx.post(f"{url}/v1/chat/completions", json={"messages": messages, "max_tokens": 4}, timeout=PATIENCE_S)
    assert answer.status_code == 200, answer.text
    usage = answer.json()["usage"]
    assert isinstance(usage, dict)
    return usage


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a server has left that answered two questions."""
    root = tmp_path_factory.mktemp("left")
    with served(*disk(root)) as server:
        for question in QUESTIONS:
            ask(server.url, question)
    return root


@pytest.fixture
def root(left: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    return Path(shutil.copytree(left, tmp_path / "cache"))


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")


def cache(action: str, root: Path, *arguments: str, code: int = 0) -> None:
    assert main(["cache", action, "--cache-dir", str(root), *arguments]) == code


def listed(capsys: Capture, root: Path) -> list[dict[str, Any]]:
    capsys.readouterr()
    cache("list", root, "--json")
    found = json.loads(capsys.readouterr().out)["models"]
    assert isinstance(found, list)
    return found


def blobs(root: Path) -> list[Path]:
    """The blobs that are written whole: a server may be writing others."""
    return sorted(file for file in root.glob("v1/*/blobs/*/*") if file.suffix != UNFINISHED)


def file_bytes(root: Path) -> int:
    return sum(file.stat().st_size for file in blobs(root))


def tip(capsys: Capture, root: Path) -> str:
    """The name of the longest conversation."""
    (model,) = listed(capsys, root)
    longest = max(model["entries"], key=lambda entry: int(entry["tokens"]))
    return str(longest["name"])


def header(capsys: Capture, root: Path) -> str:
    """The name of the last snapshot that lies on the way of both conversations."""
    (model,) = listed(capsys, root)
    ways = [snapshots_on_way(capsys, root, entry["name"]) for entry in model["entries"]]
    return [name for name in ways[0] if all(name in way for way in ways)][-1]


def snapshots_on_way(capsys: Capture, root: Path, name: str) -> list[str]:
    cache("show", root, name)
    return [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:] if "snapshot" in line]


# --- to look


def test_list_counts_every_byte_once(capsys: Capture, left: Path) -> None:
    (model,) = listed(capsys, left)
    assert model["label"] == model_path("qwen35").stem
    assert model["nbytes"] == sum(entry["nbytes"] for entry in model["entries"]) == file_bytes(left)
    assert model["num_blobs"] == sum(e["pages"] + e["snapshots"] for e in model["entries"]) == len(blobs(left))
    assert (model["pid"], model["problem"]) == (None, "")


def test_people_see_the_model_its_conversations_and_their_ages(capsys: Capture, left: Path) -> None:
    cache("list", left)
    output = capsys.readouterr().out
    assert f"{model_path('qwen35').stem} · {len(blobs(left))} files" in output
    (model,) = listed(capsys, left)
    for entry in model["entries"]:
        assert entry["name"][:12] in output
        assert f"{entry['tokens']:,}" in output
    assert "just now" in output or "minutes ago" in output


@pytest.mark.parametrize("width", [80, 200])
def test_names_and_sizes_are_whole_whatever_the_width(
    capsys: Capture, left: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    (model,) = listed(capsys, left)
    monkeypatch.setenv("COLUMNS", str(width))
    cache("list", left)
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= width for line in lines[1:])
    for entry in model["entries"]:
        (line,) = [line for line in lines if entry["name"][:8] in line]
        assert f"{entry['tokens']:,} " in line
        assert f" {entry['text'][:8]}" in line


def test_each_conversation_is_told_by_its_own_words(capsys: Capture, left: Path) -> None:
    (model,) = listed(capsys, left)
    texts = [entry["text"] for entry in model["entries"]]
    assert all(any(question[:20] in text for text in texts) for question in QUESTIONS)
    assert not any("<|" in text or "careful assistant" in text for text in texts)
    cache("list", left)
    output = capsys.readouterr().out
    assert all(question[:16] in output for question in QUESTIONS)


@pytest.mark.parametrize("content", ["", "/gone.gguf", "secret"])
def test_without_the_model_file_there_is_no_text(capsys: Capture, root: Path, content: str) -> None:
    (note,) = root.glob("v1/*/model")
    note.write_text(str(root / content) if content else "")
    cache("list", root)
    assert NO_TEXT in capsys.readouterr().out
    cache("show", root, tip(capsys, root))
    assert "careful assistant" not in capsys.readouterr().out


def test_an_empty_folder_is_said_to_be_empty(capsys: Capture, tmp_path: Path) -> None:
    cache("list", tmp_path)
    assert capsys.readouterr().out == f"nothing is kept in {tmp_path}\n"
    assert listed(capsys, tmp_path) == []


def test_show_tells_what_lies_on_the_way_and_its_text(capsys: Capture, left: Path) -> None:
    name = tip(capsys, left)
    cache("show", left, name[:12])
    output = capsys.readouterr().out
    assert name in output
    assert "snapshot" in output
    assert "page" in output
    cache("show", left, name[:12], "--text", str(model_path("qwen35")))
    assert capsys.readouterr().out == output
    assert "You are a careful assistant" in output
    assert any(question in output for question in QUESTIONS)


def test_a_name_must_stand_for_one_entry(capsys: Capture, left: Path) -> None:
    cache("show", left, "xyz", code=1)
    assert "no entry has a name that begins with 'xyz'" in capsys.readouterr().err
    cache("show", left, "", code=1)
    assert f"{len(blobs(left))} entries have a name" in capsys.readouterr().err


def test_a_model_that_is_not_there_is_told_with_those_that_are(capsys: Capture, left: Path) -> None:
    cache("list", left, "--model", "gpt-9", code=1)
    error = capsys.readouterr().err
    assert "'gpt-9'" in error
    assert model_path("qwen35").stem in error
    cache("list", left, "--model", model_path("qwen35").stem)


# --- to check


def test_verify_finds_nothing_wrong_with_what_a_server_left(capsys: Capture, left: Path) -> None:
    cache("verify", left)
    assert f"{len(blobs(left))} files" in capsys.readouterr().out
    cache("verify", left, "--json")
    (model,) = json.loads(capsys.readouterr().out)["models"]
    assert (model["faults"], model["nbytes"]) == ([], file_bytes(left))


def test_verify_names_what_is_damaged_and_fix_removes_it(capsys: Capture, root: Path) -> None:
    flipped, missing, cut = blobs(root)[:3]
    flipped.write_bytes(flipped.read_bytes()[:-1] + b"x")
    missing.unlink()
    cut.write_bytes(cut.read_bytes()[:100])
    cache("verify", root, code=1)
    output = capsys.readouterr().out
    assert "3 damaged" in output
    for file, reason in ((flipped, "checksum"), (missing, "the file is missing"), (cut, "cut short")):
        assert any(file.name in line and reason in line for line in output.splitlines())
    cache("verify", root, "--json", code=1)
    (model,) = json.loads(capsys.readouterr().out)["models"]
    assert {fault["name"] for fault in model["faults"]} == {flipped.name, missing.name, cut.name}
    cache("verify", root, "--fix")
    assert "3 damaged, removed" in capsys.readouterr().out
    cache("verify", root)
    assert {flipped, missing, cut}.isdisjoint(blobs(root))
    assert listed(capsys, root)[0]["nbytes"] == file_bytes(root)


def test_verify_tells_of_a_damaged_index_and_of_lost_tokens(capsys: Capture, root: Path) -> None:
    (index,) = root.glob("v1/*/index.sqlite")
    with sqlite3.connect(index) as connection:
        connection.execute("DELETE FROM run WHERE start = 0")
    connection.close()
    cache("verify", root, code=1)
    assert f"{len(blobs(root))} damaged" in capsys.readouterr().out
    index.write_bytes(b"nonsense" * 1000)
    cache("verify", root, code=1)
    assert "index.sqlite: " in capsys.readouterr().out
    cache("verify", root, "--fix")
    cache("verify", root)
    assert blobs(root) == []


# --- to make smaller


def test_prune_keeps_within_what_was_asked_and_the_rest_is_sound(capsys: Capture, root: Path) -> None:
    half = file_bytes(root) / 2
    cache("prune", root, "--to", str(half / (1 << 20)))
    assert 0 < file_bytes(root) <= half
    assert "are left" in capsys.readouterr().out
    cache("verify", root)
    assert listed(capsys, root)[0]["nbytes"] == file_bytes(root)
    cache("prune", root, "--to", "0")
    assert blobs(root) == []


def test_prune_names_the_folder_whose_index_it_cannot_read(capsys: Capture, root: Path) -> None:
    (index,) = root.glob("v1/*/index.sqlite")
    index.write_bytes(b"nonsense" * 1000)
    cache("prune", root, "--to", "0")
    assert f"left alone: {index.parent.name}, " in capsys.readouterr().out
    assert blobs(root)


def test_prune_by_age_removes_only_what_is_old(capsys: Capture, root: Path) -> None:
    names = [file.name for file in blobs(root)]
    cache("prune", root, "--older", "1")
    assert len(blobs(root)) == len(names)
    (index,) = root.glob("v1/*/index.sqlite")
    with sqlite3.connect(index) as connection:
        connection.execute("UPDATE blob SET last_used = ? WHERE name = ?", (time.time() - 2 * 86_400, names[0]))
    connection.close()
    cache("prune", root, "--older", "1")
    assert [file.name for file in blobs(root)] == names[1:]
    assert "removed 1 file " in capsys.readouterr().out


def test_prune_wants_to_know_how_much(capsys: Capture, root: Path) -> None:
    cache("prune", root, code=1)
    assert "--to MIB, --older DAYS" in capsys.readouterr().err
    for arguments in (["--to", "-1"], ["--older", "nan"], ["--to", "much"], ["--to", "1e308"]):
        with pytest.raises(SystemExit):
            cache("prune", root, *arguments)
        assert f"{arguments[1]!r} is not a number from 0 to 1,000,000,000,000" in capsys.readouterr().err
    assert blobs(root)


def test_clear_removes_everything(capsys: Capture, root: Path) -> None:
    cache("clear", root)
    assert "removed" in capsys.readouterr().out
    assert [*(root / "v1").iterdir()] == []


# --- to hand on


def test_a_beginning_is_exported_and_a_server_elsewhere_goes_on_from_it(
    capsys: Capture, left: Path, tmp_path: Path
) -> None:
    bundle, elsewhere = tmp_path / "header.leftoff", tmp_path / "elsewhere"
    cache("export", left, header(capsys, left), str(bundle))
    cache("import", elsewhere, str(bundle))
    output = capsys.readouterr().out
    assert "no server with that model, library and KV type has used this folder" in output
    cache("verify", elsewhere)
    cache("list", elsewhere)
    assert NO_TEXT in capsys.readouterr().out
    with served(*disk(elsewhere)) as server:
        usages = [ask(server.url, question) for question in QUESTIONS]
    for usage in usages:
        assert usage["prompt_tokens_details"]["cached_tokens"] > 0.9 * usage["prompt_tokens"]
    cache("import", elsewhere, str(bundle), "--model", model_path("qwen35").stem)


def test_a_conversation_that_uses_a_page_of_another_is_exported_with_it(
    capsys: Capture, left: Path, tmp_path: Path
) -> None:
    name = tip(capsys, left)
    cache("show", left, name)
    assert "page, shared" in capsys.readouterr().out
    cache("export", left, name, str(tmp_path / "conversation.leftoff"))
    cache("import", tmp_path, str(tmp_path / "conversation.leftoff"))
    cache("verify", tmp_path)
    capsys.readouterr()
    cache("show", tmp_path, name)
    output = capsys.readouterr().out
    assert "page, shared" in output
    assert "no prompt can resume here" not in output


@pytest.mark.parametrize("position", [3, 16, 30, 400, -1, -100])
def test_a_bundle_that_was_changed_is_refused_and_leaves_nothing(
    capsys: Capture, left: Path, tmp_path: Path, position: int
) -> None:
    bundle, elsewhere = tmp_path / "header.leftoff", tmp_path / "elsewhere"
    cache("export", left, tip(capsys, left), str(bundle))
    content = bytearray(bundle.read_bytes())
    content[position] ^= 1
    bundle.write_bytes(content)
    cache("import", elsewhere, str(bundle), code=1)
    assert str(bundle) in capsys.readouterr().err
    assert blobs(elsewhere) == []
    bundle.write_bytes(bytes(content)[: len(content) // 2])
    cache("import", elsewhere, str(bundle), code=1)
    assert blobs(elsewhere) == []


def test_a_bundle_of_another_model_is_refused_where_one_is_named(capsys: Capture, left: Path, tmp_path: Path) -> None:
    other, bundle = tmp_path / "other", tmp_path / "other.leftoff"
    with store_in(other) as store:
        written(store, [page(0, 100)], path_of(100))
    cache("export", other, tip(capsys, other), str(bundle))
    before = file_bytes(left)
    cache("import", left, str(bundle), "--model", model_path("qwen35").stem, code=1)
    assert "made by another model, library or KV type" in capsys.readouterr().err
    assert file_bytes(left) == before


# --- while a server runs


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """The folder of a server that runs, and its process."""
    root = tmp_path_factory.mktemp("busy")
    with serving(*disk(root)) as server:
        ask(server.url, QUESTIONS[0])
        yield root, server.process.pid


def test_looking_works_while_a_server_runs(capsys: Capture, busy: tuple[Path, int]) -> None:
    root, pid = busy
    assert listed(capsys, root)[0]["pid"] == pid
    cache("list", root)
    assert f"in use by process {pid}" in capsys.readouterr().out
    cache("verify", root)


@pytest.mark.parametrize("action", [("prune", "--to", "0"), ("clear",)])
def test_changing_says_that_a_server_uses_the_folder(
    capsys: Capture, busy: tuple[Path, int], action: tuple[str, ...]
) -> None:
    root, pid = busy
    before = blobs(root)
    cache(action[0], root, *action[1:], code=1)
    assert f"in use by a server (process {pid}): stop it first" in capsys.readouterr().err
    assert set(before) <= set(blobs(root))
