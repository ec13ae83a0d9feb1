"""Replies on disk: there after any end of the process, apart by namespace, bounded, and never in the way."""

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from leftoff.blobs.replies import MediumReplies
from leftoff.disk.reply_store import FILE, open_replies
from tests.patience import PATIENCE_S


def opened(folder: Path, **limits: int) -> MediumReplies:
    store = open_replies(folder, "model", **limits)
    assert store is not None
    return store


def test_what_was_put_is_there_at_once_and_later(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.put(b"a", "me", b"one")
    assert store.get([b"a", b"b"]) == {b"a": b"one"}
    store.put(b"a", "me", b"two")
    store.close()
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    again = opened(tmp_path)
    assert again.get([b"a"]) == {b"a": b"two"}
    again.close()


def test_it_is_there_after_a_kill(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from leftoff.disk.reply_store import open_replies\n"
        "store = open_replies(Path(sys.argv[1]), 'model'); store.put(b'a', '', b'one')\n"
        "while not store._medium.get([b'a']): time.sleep(0.01)\n"
        "print('written', flush=True); time.sleep(300)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
    store = opened(tmp_path)
    assert store.get([b"a"]) == {b"a": b"one"}
    store.close()


def test_namespaces_are_removed_apart(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.put(b"a", "mine", b"one")
    store.put(b"b", "yours", b"two")
    store.close()
    store = opened(tmp_path)
    store.put(b"c", "mine", b"three")
    (removed,) = store.remove(lambda name: name == "mine")
    removed.result(PATIENCE_S)
    assert store.get([b"a", b"b", b"c"]) == {b"b": b"two"}
    store.close()
    store = opened(tmp_path)
    assert store.get([b"a", b"b", b"c"]) == {b"b": b"two"}
    store.close()


def test_it_stays_below_its_limit(tmp_path: Path) -> None:
    for part in range(4):
        store = opened(tmp_path, limit_bytes=200_000)
        for number in range(100):
            store.put(b"%d-%d" % (part, number), "", b"x" * 1000)
        store.close()
    store = opened(tmp_path)
    found = store.get([b"%d-%d" % (part, number) for part in range(4) for number in range(100)])
    store.close()
    assert 50 <= len(found) <= 220
    assert b"3-99" in found, "the newest is kept"


def test_what_was_read_lately_stays_when_it_is_full(tmp_path: Path) -> None:
    store = opened(tmp_path, limit_bytes=200_000)
    store.put(b"used", "", b"x" * 1000)
    store.close()
    for part in range(4):
        store = opened(tmp_path, limit_bytes=200_000)
        assert store.get([b"used"]), part
        for number in range(100):
            store.put(b"%d-%d" % (part, number), "", b"x" * 1000)
        store.close()


@pytest.mark.parametrize("column", ["value", "seal"])
def test_what_is_not_as_it_was_written_is_left_out(tmp_path: Path, column: str) -> None:
    store = opened(tmp_path)
    store.put(b"a", "", b"one")
    store.put(b"b", "", b"two")
    store.close()
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute(f"UPDATE reply SET {column} = x'00' WHERE key = ?", (b"a",))
    connection.close()
    store = opened(tmp_path)
    assert store.get([b"a", b"b"]) == {b"b": b"two"}
    store.close()


def test_another_model_reads_nothing_of_it(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.put(b"a", "", b"one")
    store.close()
    other = open_replies(tmp_path, "another model")
    assert other is not None
    assert other.get([b"a"]) == {}
    other.close()


@pytest.mark.parametrize("content", [b"no database" * 1000, b"", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_file_is_made_anew(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    store = opened(tmp_path)
    store.put(b"a", "", b"one")
    store.close()
    store = opened(tmp_path)
    assert store.get([b"a"]) == {b"a": b"one"}
    store.close()


def test_without_a_folder_there_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    assert open_replies(tmp_path / "file", "model") is None
    assert "not remembered" in caplog.text


def test_a_disk_that_fails_is_reported_once_and_raises_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(tmp_path)
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("DROP TABLE reply")
    connection.close()
    store.put(b"a", "", b"one")
    store.remove(lambda _: True)
    assert store.get([b"a"]) == {}
    store.close()
    assert len(caplog.records) == 1
