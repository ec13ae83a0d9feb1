"""Kills a process that puts and removes, at random moments, and looks at what it has left each time.

`python -m tests.disk.kill_loop 200` kills two hundred times. The process that kills has no threads, so that it may
fork: the one to be killed, and one that opens the folder after it and checks.
"""

import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from leftoff.blobs.blob import Blob
from leftoff.blobs.path_hash import HashedPath
from leftoff.cache.blob_store import Item
from leftoff.types import Tokens
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
)

_LONGEST_LIFE_S = 0.3
_MAX_ITEMS = 60
_NAMESPACES = ("", "tenant")
_ACKNOWLEDGED, _REMOVING = "acknowledged", "removing"


def main(num_kills: int, seed: int = 0) -> int:
    """Returns how many items were acknowledged in all."""
    rng = random.Random(seed)
    kept: set[str] = set()
    num_acknowledged = 0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for number in range(num_kills):
            for what, name in _lines_of_the_killed(root, rng, seed=seed * 1_000_000 + number):
                (kept.add if what == _ACKNOWLEDGED else kept.discard)(name)
                num_acknowledged += what == _ACKNOWLEDGED
            _check_in_a_fork(root, kept)
    return num_acknowledged


def _lines_of_the_killed(root: Path, rng: random.Random, seed: int) -> list[tuple[str, str]]:
    reading, writing = os.pipe()
    pid = _fork(lambda: _work(root, seed, writing))
    os.close(writing)
    text = ""
    with open(reading) as lines:  # noqa: PTH123
        if rng.random() < 0.5:  # else it may be killed before it has done anything, on a busy machine each time
            while _ACKNOWLEDGED not in text:
                text += lines.readline()
        time.sleep(rng.uniform(0, _LONGEST_LIFE_S))
        os.kill(pid, signal.SIGKILL)
        text += lines.read()
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), f"it ended by itself, with {os.waitstatus_to_exitcode(status)}"
    whole_lines = text.split("\n")[:-1]
    return [(what, name) for what, _, name in (line.partition(" ") for line in whole_lines)]


def _work(root: Path, seed: int, out: int) -> None:
    """Until it is killed. What goes is said before it goes, what came is said after it is safe."""
    rng = random.Random(seed)

    def say(what: str, name: str) -> None:
        os.write(out, f"{what} {name}\n".encode())

    with store_in(root) as store:
        records = {name: record_of(item) for name, (_, item, _) in recalled(store).items()}
        while True:
            fresh = {}
            for _ in range(rng.randrange(1, 6)):
                _, item, namespace, tokens = rng.choice(_ITEMS)
                record = put(store, item, tokens, namespace)
                fresh[record.name] = record
            while len(records) > _MAX_ITEMS or (records and rng.random() < 0.3):
                name = rng.choice([*records])
                say(_REMOVING, name)
                store.remove(records.pop(name))
                fresh.pop(name, None)
            records |= fresh
            if rng.random() < 0.7:
                assert store.flush(WAIT_S)
                assert store.take_lost() == []
                for name in fresh:
                    say(_ACKNOWLEDGED, name)


def _check(root: Path, kept: set[str]) -> None:
    with store_in(root) as store:
        found = recalled(store)
        assert kept <= {*found}, f"{len(kept - {*found})} acknowledged blobs are lost"
        known = {name: (item, namespace, tokens) for name, item, namespace, tokens in _ITEMS}
        for name, (path, item, _) in found.items():
            expected, namespace, tokens = known[name]
            assert content(read(store, record_of(item))) == content(expected)
            assert path.namespace == namespace
            end = Blob.of(expected, HashedPath(namespace, tokens)).end
            assert np.array_equal(path.tokens[:end], tokens[:end])
        assert {file.name for file in blob_files(root)} == {*found}, "what nobody knows is gone"
        with sqlite3.connect(store.medium.path / "index.sqlite") as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def _items() -> Iterator[tuple[str, Item, str, Tokens]]:
    """Paths that share their beginning, of two namespaces."""
    for seed, namespace in enumerate(_NAMESPACES * 3):
        tokens = path_of(4000)
        tokens[1500:] = path_of(2500, seed)
        for end in range(500, 4001, 500):
            for item in (page(end - 500, end, 1000 * end // 20), snapshot(end - 7, 30_000)):
                # what lies before the fork is the same on both paths, and so are its bytes
                yield Blob.of(item, HashedPath(namespace, tokens)).name, item, namespace, tokens


_ITEMS = [*_items()]


def _check_in_a_fork(root: Path, kept: set[str]) -> None:
    _, status = os.waitpid(_fork(lambda: _check(root, kept)), 0)
    assert status == 0, "see above"


def _fork(function: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        function()
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    num_kills = int(sys.argv[1])
    started = time.monotonic()
    num_acknowledged = main(num_kills, *map(int, sys.argv[2:]))
    print(f"killed {num_kills} times, {num_acknowledged} acknowledged, none lost ({time.monotonic() - started:.0f} s)")
