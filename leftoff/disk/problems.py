"""A failing disk in plain words: what happened, where, and what to do."""

import errno
import os
import sqlite3
from pathlib import Path
from tempfile import TemporaryFile

from leftoff.disk.errors import DamagedIndexError, FolderError
from leftoff.disk.files import make_folder

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ESTALE}
_SQLITE = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
}

PROBLEMS = (OSError, sqlite3.Error, DamagedIndexError)


def describe(problem: Exception, folder: Path) -> str:
    number = _number(problem)
    if isinstance(problem, FolderError):
        return str(problem)
    if isinstance(problem, DamagedIndexError):
        return f"the index in {folder} is damaged ({problem}): it is set aside, and a new one begun"
    obstacle = _obstacle(folder)
    if obstacle:
        return f"{obstacle} is no folder: give another --cache-dir"
    if number in _FULL:
        return f"the disk of {folder} is full: free some space, or give a smaller --disk or another --cache-dir"
    if number in _REFUSED:
        return f"{folder} cannot be written: change its permissions, or give another --cache-dir"
    if _cannot_be_made(problem, folder):
        return f"{folder} cannot be made: give another --cache-dir"
    if number in _GONE:
        return f"{folder} is gone: it will be made again"
    return f"{folder} fails ({problem}): look at the disk, or give another --cache-dir"


def problem_of(folder: Path) -> str:
    """Why nothing can be written there; empty if it can."""
    try:
        make_folder(folder)
        with TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return describe(error, folder)


def _obstacle(folder: Path) -> Path | None:
    """What stands where a folder should be."""
    return next((path for path in (folder, *folder.parents) if _is_there(path) and not _is_folder(path)), None)


def _cannot_be_made(problem: Exception, folder: Path) -> bool:
    if not isinstance(problem, OSError) or not isinstance(problem.filename, str):
        return False
    failed = Path(problem.filename)
    return failed in (folder, *folder.parents) and _is_folder(failed.parent) and not _is_there(failed)


def _is_there(path: Path) -> bool:
    return os.path.lexists(path)  # a Path would raise where it may not look


def _is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112


def _number(problem: Exception) -> int | None:
    if isinstance(problem, sqlite3.Error):
        return _SQLITE.get(getattr(problem, "sqlite_errorcode", 0) & 0xFF)
    return problem.errno if isinstance(problem, OSError) else None
