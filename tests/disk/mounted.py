"""A store on a disk of its own that really is full, or really becomes read-only.

Run where mounting is allowed: `unshare --user --map-root-user --mount python -m tests.disk.mounted full`.
"""

import logging
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from tests.cli.running import serving
from tests.disk.stores import (
    WAIT_S,
    blob_files,
    content,
    page,
    path_of,
    put,
    read,
    recalled,
    record_of,
    snapshot,
    store_in,
    written,
)
from tests.patience import until

TOKENS = path_of(3000)
SIZES = {
    "full": "size=4m",
    "deleting": "size=4m",
    "read_only": "size=4m",
    "serving": "size=640m",
}  # a server leaves 256 MiB free


def full(disk: Path) -> None:
    with store_in(disk / "cache") as store:
        (before,) = written(store, [page(0, 1000)], TOKENS)
        filler = _fill(disk)
        late = put(store, page(1000, 3000, nbytes=500_000), TOKENS)
        assert store.flush(WAIT_S)
        assert store.take_lost() == [late]
        assert content(read(store, before)) == content(page(0, 1000))
        assert [file.name for file in blob_files(disk / "cache")] == [before.name], "nothing half-written stays"
        filler.unlink()
        assert until(lambda: store.put(page(1000, 3000, nbytes=500_000), "", TOKENS) is not None)
        assert store.flush(WAIT_S)
        assert store.take_lost() == []
    with store_in(disk / "cache") as store:
        assert len(recalled(store)) == 2


def deleting(disk: Path) -> None:
    """On a full disk the files that are to be deleted make the room that sqlite needs to delete."""
    root = disk / "cache"
    with store_in(root) as store:
        written(store, [page(start, start + 100) for start in range(0, 3000, 100)], TOKENS, "mine/")
        (other,) = written(store, [page(0, 1000)], TOKENS, "other/")
        _fill(disk)
        store.clear(lambda name: name == "mine/").result(WAIT_S)
        assert [file.name for file in blob_files(root)] == [other.name]
        _fill(disk)
        put(store, page(1000, 3000, nbytes=500_000), TOKENS)
        assert store.flush(WAIT_S)  # from now on the index is closed
        _fill(disk)
        try:
            store.clear(lambda name: name == "other/").result(WAIT_S)
        except OSError as error:
            print(f"nothing is deleted: {error}")


def read_only(disk: Path) -> None:
    root = disk / "cache"
    with store_in(root) as store:
        (before,) = written(store, [page(0, 1000)], TOKENS)
        _freeze(root)
        late = put(store, page(1000, 3000), TOKENS)
        assert store.flush(WAIT_S)
        assert store.take_lost() == [late]
        assert content(read(store, before)) == content(page(0, 1000))
        _thaw(root)
        assert until(lambda: store.put(page(1000, 3000), "", TOKENS) is not None)
        assert store.flush(WAIT_S)
        assert store.take_lost() == []
    _freeze(root)
    with store_in(root) as store:
        found = [record_of(item) for _, item, _ in recalled(store).values()]
        assert {content(read(store, record)) for record in found} == {content(page(0, 1000)), content(page(1000, 3000))}
        assert store.put(snapshot(3000), "", TOKENS) is None
        _thaw(root)
        assert until(lambda: store.put(snapshot(3000), "", TOKENS) is not None)
        assert store.flush(WAIT_S)
        assert store.take_lost() == [], "what was there when it could not be written is still there"
    with store_in(root) as store:
        assert len(recalled(store)) == 3


def serving_on(disk: Path) -> None:
    """A server goes on answering while its folder is read-only, and keeps again when it can."""
    root = disk / "cache"
    root.mkdir()
    with serving("--cache-dir", str(root), "--disk", "64") as server:

        def ask(question: str) -> str:
            body = {"prompt": f"{question} " * 20, "max_tokens": 4, "temperature": 0}
            answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=WAIT_S)
            assert answer.status_code == 200, answer.text
            return str(answer.json()["choices"][0]["text"])

        def is_written_again() -> bool:
            time.sleep(0.5)  # the disk is tried again after seconds: no need to ask all the time
            return bool(ask("Who lives there?")) and "written again" in server.log

        first = ask("Where does the river end?")
        assert until(lambda: bool(blob_files(root)))
        _freeze(root)
        assert ask("Where does the river end?") == first
        assert ask("How high is the mountain?")
        assert until(lambda: "cannot be written" in server.log)
        _thaw(root)
        assert until(is_written_again)
        assert ask("Where does the river end?") == first
        assert server.stop() == 0
        print(server.log)


def _fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("ab", buffering=0) as file:
        try:
            while file.write(bytes(1024)):
                pass
        except OSError:
            print("the disk is full")
    return filler


def _freeze(root: Path) -> None:
    """Mounted onto itself, since a disk with files open for writing does not become read-only."""
    subprocess.run(["mount", "--bind", root, root], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", root], check=True)


def _thaw(root: Path) -> None:
    subprocess.run(["umount", "--lazy", root], check=True)


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s", stream=sys.stdout)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", SIZES[sys.argv[1]], "leftoff", folder], check=True)
        try:
            {"full": full, "deleting": deleting, "read_only": read_only, "serving": serving_on}[sys.argv[1]](
                Path(folder)
            )
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)
