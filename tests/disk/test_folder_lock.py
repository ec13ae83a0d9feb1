"""Two processes never write in one folder."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leftoff.disk.errors import FolderBusyError
from leftoff.disk.folder import FolderLock, holder, is_locked
from tests.disk.stores import WAIT_S, page, path_of, recalled, store_in, written

ROOT = Path(__file__).parents[2]
HOLD = """
import sys
from pathlib import Path
from tests.disk.stores import page, path_of, store_in, written
with store_in(Path(sys.argv[1])) as store:
    written(store, [page(0, 100)], path_of(100))
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def other_process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Has a store in the same folder, with one page in it."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_the_second_process_is_told_who_is_there_and_what_to_do(
    tmp_path: Path, other_process: subprocess.Popen[str]
) -> None:
    with pytest.raises(FolderBusyError) as error, store_in(tmp_path):
        pass
    assert str(tmp_path) in str(error.value)
    assert f"process {other_process.pid}" in str(error.value)
    assert "--cache-dir" in str(error.value)


def test_the_folder_of_a_killed_process_is_free_at_once(tmp_path: Path, other_process: subprocess.Popen[str]) -> None:
    other_process.kill()
    other_process.wait(WAIT_S)
    with store_in(tmp_path) as store:
        assert len(recalled(store)) == 1


def test_a_lock_tells_its_holder_and_ends_with_it(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    lock = FolderLock.take(tmp_path)
    assert is_locked(tmp_path)
    assert holder(tmp_path) is not None
    with pytest.raises(FolderBusyError, match="by another model of this server"):
        FolderLock.take(tmp_path)
    lock.release()
    assert not is_locked(tmp_path)
    FolderLock.take(tmp_path).release()


def test_a_lock_in_a_folder_that_was_removed_counts_for_nothing(tmp_path: Path) -> None:
    lock = FolderLock.take(tmp_path)
    assert lock.is_current()
    (tmp_path / "lock").unlink()
    assert not lock.is_current()
    FolderLock.take(tmp_path).release()
    lock.release()


def test_a_closed_store_lets_go(tmp_path: Path) -> None:
    for _ in range(3):
        with store_in(tmp_path) as store:
            written(store, [page(0, 100)], path_of(100))
