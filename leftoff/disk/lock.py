"""One process at a time writes in a model's folder. The system lets go of the lock when that process ends, however."""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

from leftoff.disk.errors import FolderBusyError

_FILE = "lock"
_PATIENCE_S = 0.5  # somebody may just be looking, or just be ending
_STEP_S = 0.02


class FolderLock:
    """Held from `take` until `release`."""

    def __init__(self, folder: Path, fd: int) -> None:
        self._path = folder / _FILE
        self._fd = fd

    @classmethod
    def take(cls, folder: Path) -> "FolderLock":
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            fd = _open(folder / _FILE)
            lock = cls(folder, fd)
            if _try_lock(fd, fcntl.LOCK_EX) and lock.is_current():
                break
            os.close(fd)
            if time.monotonic() > deadline:
                raise FolderBusyError(folder, holder(folder))
            time.sleep(_STEP_S)
        with suppress(OSError):  # a read-only folder can be locked all the same
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return lock

    def is_current(self) -> bool:
        """False after the folder was removed: whoever makes it again makes another lock."""
        try:
            return os.path.samestat(os.fstat(self._fd), self._path.stat())
        except OSError:
            return False

    def release(self) -> None:
        os.close(self._fd)


def is_locked(folder: Path) -> bool:
    try:
        fd = os.open(folder / _FILE, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _try_lock(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def holder(folder: Path) -> int | None:
    """The process that holds the lock, or has held it last."""
    try:
        return int((folder / _FILE).read_text())
    except (OSError, ValueError):
        return None


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        with suppress(OSError):
            return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        raise


def _try_lock(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
