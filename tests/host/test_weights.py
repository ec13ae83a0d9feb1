"""The weights of a model that waits for room are read into the page cache, as long as it waits."""

import os
import threading
from pathlib import Path

import pytest

from leftoff.host.seats import Seats
from leftoff.host.weights import read_weights
from tests.patience import until

NUM_BYTES = 64 << 20


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A file that is not in the page cache."""
    if not hasattr(os, "posix_fadvise") or not hasattr(os, "RWF_NOWAIT"):
        pytest.skip("Linux tells what is in its page cache")
    path = tmp_path / "weights.gguf"
    with path.open("wb") as file:
        file.write(bytes(NUM_BYTES))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if is_cached(path):
        pytest.skip("this file system lets nothing go")
    return path


def is_cached(path: Path, place: int = 1) -> bool:
    """By one byte, at a place of its own each time: the look itself has what is around it read."""
    with path.open("rb", buffering=0) as file:
        try:
            return os.preadv(file.fileno(), [bytearray(1)], place * NUM_BYTES // 8 - 1, os.RWF_NOWAIT) == 1
        except BlockingIOError:
            return False
        except OSError:
            pytest.skip("this file system does not tell")


def test_they_are_read_while_they_are_wanted(weights: Path) -> None:
    thread = read_weights(weights, lambda: False)
    assert thread is not None
    thread.join()
    assert not is_cached(weights, 3)
    thread = read_weights(weights, lambda: True)
    assert thread is not None
    thread.join()
    assert is_cached(weights, 5)


def test_files_that_are_gone_are_not_read(tmp_path: Path) -> None:
    assert read_weights(tmp_path / "none.gguf", lambda: True) is None


def test_who_waits_for_room_has_them_read(weights: Path) -> None:
    seats = Seats(most=1)
    loaded, waiting = seats.add(), seats.add()
    waiting.path = weights
    assert loaded.admits()
    assert not is_cached(weights, 3)
    assert not waiting.admits()
    assert until(lambda: all(thread.name != "leftoff-weights" for thread in threading.enumerate()))
    assert is_cached(weights, 5)
