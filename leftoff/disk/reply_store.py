"""Remembered replies in a file beside the index of a model's folder: the medium of a `blobs.replies.MediumReplies`."""

import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from leftoff.blobs import clock
from leftoff.blobs.replies import MediumReplies, Sealed
from leftoff.disk.errors import FirstProblem, describe
from leftoff.disk.files import FILE_MODE
from leftoff.disk.index import erase_deleted

logger = logging.getLogger("leftoff.disk")

FILE = "replies.sqlite"
_FORMAT = 1
_TABLE = """
CREATE TABLE reply (
    key BLOB PRIMARY KEY, namespace TEXT NOT NULL, seal BLOB NOT NULL, value BLOB NOT NULL, last_used REAL NOT NULL
) STRICT;
CREATE INDEX reply_by_use ON reply (last_used);
"""
_LIMIT_BYTES = 64 << 20
_DROPPED_PART = 8  # of the rows, at once, when the file is full
_BUSY_S = 2.0
_KEYS_AT_ONCE = 500  # sqlite takes no more values in one statement on old systems


def open_replies(folder: Path, fingerprint: str, *, limit_bytes: int = _LIMIT_BYTES) -> MediumReplies | None:
    """The replies in the folder of a model, which this process has locked. None if the disk fails."""
    try:
        return MediumReplies(ReplyFile.open(folder, limit_bytes), fingerprint)
    except (OSError, sqlite3.Error) as error:
        logger.warning("replies are not remembered beyond the end of the server: %s", describe(error, folder))
        return None


class ReplyFile:
    """Implements `blobs.replies.ReplyMedium`."""

    seal_bytes = 32
    gather_s = 0.2

    def __init__(self, folder: Path, connection: sqlite3.Connection, limit_bytes: int) -> None:
        self._connection = connection
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._problem = FirstProblem("replies are not kept", folder)

    @classmethod
    def open(cls, folder: Path, limit_bytes: int = _LIMIT_BYTES) -> "ReplyFile":
        """Opens the file in the folder of a model, or makes it. Raises `OSError` and `sqlite3.Error`."""
        return cls(folder, _connect(folder / FILE), limit_bytes)

    def get(self, keys: Sequence[bytes]) -> Mapping[bytes, Sealed]:
        found: dict[bytes, Sealed] = {}
        with self._reporting():
            for start in range(0, len(keys), _KEYS_AT_ONCE):
                some = keys[start : start + _KEYS_AT_ONCE]
                query = f"SELECT key, namespace, seal, value FROM reply WHERE key IN ({','.join('?' * len(some))})"
                found |= {key: Sealed(*row) for key, *row in self._connection.execute(query, some)}
            now = clock.now()
            with self._connection:  # when the file is full, what is used longest ago goes
                self._connection.executemany(
                    "UPDATE reply SET last_used = ? WHERE key = ?", [(now, key) for key in found]
                )
        return found

    def put(self, values: Mapping[bytes, Sealed]) -> None:
        now = clock.now()
        with self._reporting():
            with self._connection:
                rows = [(key, *sealed, now) for key, sealed in values.items()]
                self._connection.executemany("INSERT OR REPLACE INTO reply VALUES (?, ?, ?, ?, ?)", rows)
            while self._num_bytes() > self._limit_bytes:
                self._drop_oldest()

    def remove(self, is_meant: Callable[[str], bool]) -> None:
        with self._lock:
            names = [name for (name,) in self._connection.execute("SELECT DISTINCT namespace FROM reply")]
            meant = [(name,) for name in names if is_meant(name)]
            with self._connection:
                self._connection.executemany("DELETE FROM reply WHERE namespace = ?", meant)
            erase_deleted(self._connection)

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self._connection.close()

    def _drop_oldest(self) -> None:
        with self._connection:
            (count,) = self._connection.execute("SELECT count(*) FROM reply").fetchone()
            oldest = "SELECT key FROM reply ORDER BY last_used LIMIT ?"
            self._connection.execute(f"DELETE FROM reply WHERE key IN ({oldest})", (count // _DROPPED_PART + 1,))

    def _num_bytes(self) -> int:
        pages = [self._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count")]
        return int((pages[0] - pages[1]) * self._connection.execute("PRAGMA page_size").fetchone()[0])

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """One thread at a time. A failing disk is reported once."""
        try:
            with self._lock:
                yield
        except (OSError, sqlite3.Error) as error:
            self._problem.tell(error)


def _connect(path: Path) -> sqlite3.Connection:
    """Opens the file, or makes it; one that is damaged or of another format is made anew: no reply is irreplaceable."""
    try:
        return _opened(path)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):  # of the system, not of the file
            raise
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    return _opened(path)


def _opened(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, FILE_MODE))
    connection = sqlite3.connect(path, timeout=_BUSY_S, check_same_thread=False)
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version not in (0, _FORMAT):
            raise sqlite3.DatabaseError(f"{path} has format {version}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        if version == 0:
            connection.executescript(f"BEGIN; {_TABLE} PRAGMA user_version = {_FORMAT}; COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection
