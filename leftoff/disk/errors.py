"""Errors of the cache folder, and `describe`, which says in plain words what happened and what to do.

The server runs on without the disk tier; every message names the folder and the way out.
"""

import errno
import logging
import os
import sqlite3
from pathlib import Path

logger = logging.getLogger("leftoff.disk")

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ESTALE}
_SQLITE = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
}


class FolderError(OSError):
    """The folder must not be used by this process. Nothing in it was touched."""


class FolderBusyError(FolderError):
    """Another server uses the folder, or another model of this one. The message is for the second of them."""

    def __init__(self, folder: Path, pid: int | None) -> None:
        self.folder = folder
        self.holder = f"process {pid}" if pid else "a process that did not give its number"
        if pid == os.getpid():
            other = "model of this server with the same file: serve it once, with an alias for each name"
        else:
            other = f"leftoff ({self.holder}): two servers of one model need a folder each"
            other += ", so give one of them another --cache-dir"
        super().__init__(f"{folder} is in use by another {other}")


class NewerFormatError(FolderError):
    """A newer leftoff wrote the folder."""


class BundleError(FolderError):
    """A bundle that cannot be imported, or a blob that cannot be exported."""


class NoRoomLeftError(OSError):
    """More would take what is left of the disk to other programs."""

    def __init__(self, folder: Path, left: str) -> None:
        super().__init__(errno.ENOSPC, f"{left} are left to other programs", str(folder))


class FullDiskError(OSError):
    """sqlite had no room for what it writes, which it does to delete as well."""

    def __init__(self) -> None:
        super().__init__(errno.ENOSPC, "the disk is full: free some space on it")

    def __str__(self) -> str:
        return str(self.strerror)


class DamagedIndexError(Exception):
    """The index is damaged. It is set aside, and the files that it listed are removed."""


PROBLEMS = (OSError, sqlite3.Error, DamagedIndexError)


def describe(problem: Exception, folder: Path) -> str:
    """Says what a failing disk means, and what to do about it."""
    number = _number(problem)
    if isinstance(problem, FolderError):
        return str(problem)
    if isinstance(problem, DamagedIndexError):
        return f"the index in {folder} is damaged ({problem}): it is set aside, and a new one begun"
    for path in (folder, *folder.parents):
        if _exists(path) and not _is_folder(path):
            return f"{path} is no folder: give another --cache-dir"
    if number in _FULL:
        left = f" ({problem.strerror})" if isinstance(problem, NoRoomLeftError) else ""
        return f"the disk of {folder} is full: free some space, or give a smaller --disk or another --cache-dir{left}"
    if number in _REFUSED:
        return f"{folder} cannot be written: change its permissions, or give another --cache-dir"
    if _cannot_be_made(problem, folder):
        return f"{folder} cannot be made: give another --cache-dir"
    if number in _GONE:
        return f"{folder} is gone: it will be made again"
    return f"{folder} fails ({problem}): look at the disk, or give another --cache-dir"


class FirstProblem:
    """Logs the first problem of what is kept in a folder, and no later one: the server works without it."""

    def __init__(self, meaning: str, folder: Path) -> None:
        self._meaning = meaning
        self._folder = folder
        self._is_told = False

    def tell(self, problem: Exception) -> None:
        if not self._is_told:
            self._is_told = True
            logger.warning("%s: %s", self._meaning, describe(problem, self._folder))


def _cannot_be_made(problem: Exception, folder: Path) -> bool:
    if not isinstance(problem, OSError) or not isinstance(problem.filename, str):
        return False
    failed = Path(problem.filename)
    return failed in (folder, *folder.parents) and _is_folder(failed.parent) and not _exists(failed)


def _exists(path: Path) -> bool:
    return os.path.lexists(path)  # a Path would raise where it may not look


def _is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112


def _number(problem: Exception) -> int | None:
    if isinstance(problem, sqlite3.Error):
        return _SQLITE.get(getattr(problem, "sqlite_errorcode", 0) & 0xFF)
    return problem.errno if isinstance(problem, OSError) else None
