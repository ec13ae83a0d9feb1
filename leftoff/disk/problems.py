"""A failing disk in plain words: what happened, where, and what to do."""

import errno
import sqlite3
from pathlib import Path

from leftoff.disk.errors import DamagedIndexError, FolderError

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
    if number in _FULL:
        return f"the disk of {folder} is full: free some space, or give a smaller --disk or another --cache-dir"
    if number in _REFUSED:
        return f"{folder} cannot be written: change its permissions, or give another --cache-dir"
    if number in _GONE:
        return f"{folder} is gone: it will be made again"
    return f"{folder} fails ({problem}): look at the disk, or give another --cache-dir"


def _number(problem: Exception) -> int | None:
    if isinstance(problem, sqlite3.Error):
        return _SQLITE.get(getattr(problem, "sqlite_errorcode", 0) & 0xFF)
    return problem.errno if isinstance(problem, OSError) else None
