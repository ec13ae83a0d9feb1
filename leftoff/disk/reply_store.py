"""Replies of the model, and names of saved slots, beside the index of its folder: a `leftoff.chat.replies.ReplyStore`.

    put ──> pending ──> writer's thread ──> replies.sqlite <── get

A reply is in the file within a second. A failing disk raises nothing: what cannot be written is kept in RAM alone.
"""

import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3

from leftoff.blobs import clock
from leftoff.disk.errors import describe
from leftoff.disk.files import FILE_MODE

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
_MOST_PENDING_BYTES = 8 << 20
_COLLECT_S = 0.2
_BUSY_S = 2.0
_KEYS_AT_ONCE = 500  # sqlite takes no more values in one statement on old systems


@dataclass(frozen=True)
class _Row:
    namespace: str
    value: bytes


class FileReplyStore:
    """Made by `open`. Any thread may call it."""

    def __init__(self, path: Path, fingerprint: str, connection: sqlite3.Connection, limit_bytes: int) -> None:
        self._path = path
        self._fingerprint = fingerprint.encode()
        self._connection = connection
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()  # of the connection
        self._changed = threading.Condition()
        self._pending: dict[bytes, _Row] = {}
        self._pending_bytes = 0
        self._is_closed = self._has_failed = False
        self._thread = threading.Thread(target=self._write_behind, name="leftoff-replies", daemon=True)
        self._thread.start()

    @classmethod
    def open(cls, folder: Path, fingerprint: str, *, limit_bytes: int = _LIMIT_BYTES) -> "FileReplyStore | None":
        """The file in the folder of a model, which this process has locked. None if the disk fails."""
        path = folder / FILE
        try:
            return cls(path, fingerprint, _connect(path), limit_bytes)
        except (OSError, sqlite3.Error) as error:
            logger.warning("replies are not remembered beyond the end of the server: %s", describe(error, folder))
            return None

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The values that are there. What is not as it was written is left out."""
        with self._changed:
            found = {key: row.value for key in keys if (row := self._pending.get(key))}
        missing = [key for key in keys if key not in found]
        with self._reporting(), self._lock:
            for start in range(0, len(missing), _KEYS_AT_ONCE):
                some = missing[start : start + _KEYS_AT_ONCE]
                query = f"SELECT key, seal, value FROM reply WHERE key IN ({','.join('?' * len(some))})"
                rows = self._connection.execute(query, some)
                found |= {key: value for key, seal, value in rows if seal == self._seal(key, value)}
        return found

    def put(self, key: bytes, namespace: str, value: bytes) -> None:
        with self._changed:
            if self._pending_bytes + len(value) > _MOST_PENDING_BYTES:
                return
            replaced = self._pending.pop(key, None)
            self._pending[key] = _Row(namespace, value)
            self._pending_bytes += len(value) - (len(replaced.value) if replaced else 0)
            self._changed.notify()

    def remove(self, is_meant: Callable[[str], bool]) -> None:
        """Removes the values of the namespaces that are meant."""
        with self._reporting(), self._lock, self._changed:
            for key in [key for key, row in self._pending.items() if is_meant(row.namespace)]:
                self._pending_bytes -= len(self._pending.pop(key).value)
            names = [name for (name,) in self._connection.execute("SELECT DISTINCT namespace FROM reply")]
            meant = [(name,) for name in names if is_meant(name)]
            with self._connection:
                self._connection.executemany("DELETE FROM reply WHERE namespace = ?", meant)

    def close(self) -> None:
        """Writes what is pending."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()
        with suppress(sqlite3.Error):
            self._connection.close()

    def _seal(self, key: bytes, value: bytes) -> bytes:
        return blake3(self._fingerprint + key + value).digest()

    def _write_behind(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._is_closed)
                if not self._pending:
                    return
                self._changed.wait_for(lambda: self._is_closed, timeout=_COLLECT_S)
            self._write()

    def _write(self) -> None:
        """Rows leave `pending` once they are in the file, so that `get` finds them at any time."""
        with self._lock:
            with self._changed:
                rows = dict(self._pending)
            with self._reporting():
                self._insert(rows)
            with self._changed:
                for key, row in rows.items():
                    if self._pending.get(key) is row:
                        self._pending_bytes -= len(self._pending.pop(key).value)

    def _insert(self, rows: dict[bytes, _Row]) -> None:
        now = clock.now()
        values = [(key, row.namespace, self._seal(key, row.value), row.value, now) for key, row in rows.items()]
        with self._connection:
            self._connection.executemany("INSERT OR REPLACE INTO reply VALUES (?, ?, ?, ?, ?)", values)
        while self._num_bytes() > self._limit_bytes:
            with self._connection:
                (count,) = self._connection.execute("SELECT count(*) FROM reply").fetchone()
                oldest = "SELECT key FROM reply ORDER BY last_used LIMIT ?"
                self._connection.execute(f"DELETE FROM reply WHERE key IN ({oldest})", (count // _DROPPED_PART + 1,))

    def _num_bytes(self) -> int:
        pages = [self._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count")]
        return int((pages[0] - pages[1]) * self._connection.execute("PRAGMA page_size").fetchone()[0])

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """A failing disk is reported once."""
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            if not self._has_failed:
                logger.warning("replies are not kept: %s", describe(error, self._path.parent))
            self._has_failed = True


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
