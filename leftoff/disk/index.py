"""The index of a model's folder, in sqlite: its blobs, and the tokens of their paths, so that no blob need be read.

Paths are stored as runs, see `path_hash.py`. Paths share their common runs, and a run's predecessors are always there.

Commits are synced (`synchronous=FULL`), and files before them: what was acknowledged survives a loss of power, not only
a crash of the process.
"""

import os
import sqlite3
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from leftoff.blobs.blob import Blob, Write, blob_name
from leftoff.blobs.medium import Use
from leftoff.blobs.path_hash import HashedPath, run_start
from leftoff.disk.errors import DamagedIndexError, FolderError, FullDiskError, NewerFormatError
from leftoff.disk.files import FILE_MODE

FORMAT = 1
FILE = "index.sqlite"
WRITTEN = "written"  # in `meta`: bytes written in the last hours
_BUSY_S = 10.0

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID, STRICT;
CREATE TABLE run (tag BLOB PRIMARY KEY, parent BLOB NOT NULL, start INTEGER NOT NULL, tokens BLOB NOT NULL) STRICT;
CREATE TABLE blob (
    name TEXT PRIMARY KEY, kind INTEGER NOT NULL, tag BLOB NOT NULL, namespace TEXT NOT NULL,
    "start" INTEGER NOT NULL, "end" INTEGER NOT NULL, nbytes INTEGER NOT NULL, file_bytes INTEGER NOT NULL,
    last_used REAL NOT NULL, hits INTEGER NOT NULL
) WITHOUT ROWID, STRICT;
CREATE INDEX blob_by_tag ON blob (tag);
"""

_DROP_RUNS = """
WITH RECURSIVE needed (tag) AS (
    SELECT tag FROM blob UNION SELECT run.parent FROM run JOIN needed ON run.tag = needed.tag
)
DELETE FROM run WHERE tag NOT IN needed
"""

_NAMES_OF = "SELECT name FROM blob WHERE namespace = ?"
_RUN_TYPES = (bytes, bytes, int, bytes)
_BLOB_TYPES = (str, int, bytes, str, int, int, int, float, int)

# Errors of the disk or the system. Every other error that sqlite reports means that the file is damaged.
_ENVIRONMENT = {
    *(sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY),
    *(sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL),
}
_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE}


@dataclass(frozen=True, slots=True)
class TokenRun:
    """Tokens [start, start + n) of a path; `tag` is the tag of the path after them, `parent` the one before them."""

    tag: bytes
    parent: bytes
    start: int
    tokens: bytes | memoryview


@dataclass(frozen=True)
class Content:
    """All rows of an index."""

    blobs: list[Blob]
    runs: list[TokenRun]


class Index:
    """One connection to an index. Used by one thread at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def open(cls, path: Path, fingerprint: str, label: str) -> "Index":
        """Opens an index to write, or makes one. Raises `DamagedIndexError` or `FolderError` and leaves it as it is."""
        # made here, because sqlite's other files take their mode from it
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, FILE_MODE))
        connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        with _closed_on_error(connection), _naming_damage():
            is_new = _check_format(connection, path)
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            index = cls(connection)
            if is_new:
                connection.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {FORMAT}; COMMIT")
            index._write_meta(path, fingerprint, label)
        return index

    @classmethod
    def look(cls, path: Path) -> "Index":
        """Opens an index to read, also while another process writes, or on a read-only disk."""
        path.stat()
        for how in ("mode=ro", "mode=ro&immutable=1"):
            connection = sqlite3.connect(
                f"file:{quote(str(path))}?{how}", uri=True, timeout=_BUSY_S, isolation_level=None
            )
            with suppress(sqlite3.OperationalError), _closed_on_error(connection), _naming_damage():
                if _check_format(connection, path):
                    raise FileNotFoundError(f"{path} is empty: the process that made it was stopped at once")
                return cls(connection)
        raise PermissionError(f"{path} cannot be read")

    def close(self) -> None:
        self._connection.close()

    # --- reading

    def meta(self, key: str) -> str:
        rows = self._rows("SELECT value FROM meta WHERE key = ?", key)
        return str(rows[0][0]) if rows else ""

    def content(self) -> Content:
        """All sound rows. Blobs are read first, because another process may be adding some, always after their runs."""
        blobs = self.blobs()
        rows = self._rows("SELECT tag, parent, start, tokens FROM run")
        return Content(blobs, [TokenRun(*row) for row in rows if _has_types(row, _RUN_TYPES)])

    def blobs(self) -> list[Blob]:
        """All blobs, but for damaged rows, whose name does not match the other columns."""
        rows = self._rows('SELECT name, kind, tag, namespace, "start", "end", nbytes, last_used, hits FROM blob')
        return [blob for blob in (Blob(*row) for row in rows if _has_types(row, _BLOB_TYPES)) if _is_sound(blob)]

    def names(self) -> set[str]:
        return {name for (name,) in self._rows("SELECT name FROM blob")}

    def has(self, name: str) -> bool:
        return bool(self._rows("SELECT 1 FROM blob WHERE name = ?", name))

    def names_in(self, is_meant: Callable[[str], bool]) -> list[str]:
        """The names of the blobs of the namespaces that are meant."""
        namespaces = [name for (name,) in self._rows("SELECT DISTINCT namespace FROM blob") if is_meant(str(name))]
        return [name for space in namespaces for (name,) in self._rows(_NAMES_OF, space)]

    # --- writing: each method is one transaction, synced when it returns

    def add(self, writes: Iterable[Write], written_lately: str = "") -> None:
        with self._transaction():
            if written_lately:
                self._connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (WRITTEN, written_lately))
            for write in writes:
                self._add_path(write.path, write.blob.end)
                self._add_blob(write.blob)

    def remove(self, names: Iterable[str]) -> None:
        with self._transaction():
            self._connection.executemany("DELETE FROM blob WHERE name = ?", [(name,) for name in names])

    def set_back(self, latest: float) -> None:
        """Sets later times of use, from when the clock was wrong, to `latest`; else they would outlast all others."""
        late = "last_used > ? OR last_used != last_used"
        if self._rows(f"SELECT 1 FROM blob WHERE {late} LIMIT 1", latest):
            with self._transaction():
                self._connection.execute(f"UPDATE blob SET last_used = ? WHERE {late}", (latest, latest))

    def note(self, uses: Iterable[Use]) -> None:
        """Adds hits to blobs."""
        rows = [(use.last_used, use.num_hits, use.blob.name) for use in uses]
        with self._transaction():
            self._connection.executemany("UPDATE blob SET last_used = ?, hits = hits + ? WHERE name = ?", rows)

    def erase(self) -> None:
        """Takes what was removed out of the file for good."""
        with _naming_damage():
            erase_deleted(self._connection)

    def drop_unreachable_runs(self) -> None:
        """Removes runs that are on the path of no blob, and gives their space back to the disk."""
        with self._transaction():
            self._connection.execute(_DROP_RUNS)
        with _naming_damage():
            self._connection.executescript("PRAGMA incremental_vacuum")  # `execute` would free only one page

    def _rows(self, query: str, *values: str | float) -> list[Any]:
        with _naming_damage():
            return self._connection.execute(query, values).fetchall()

    def _add_path(self, path: HashedPath, end: int) -> None:
        for run in runs_back(path, end):
            row = (run.tag, run.parent, run.start, run.tokens)
            if not self._connection.execute("INSERT OR IGNORE INTO run VALUES (?, ?, ?, ?)", row).rowcount:
                return  # it was there, and so are all before it

    def _add_blob(self, blob: Blob) -> None:
        row = (blob.name, blob.kind, blob.tag, blob.namespace, blob.start, blob.end, blob.nbytes, blob.file_bytes)
        self._connection.execute(
            "INSERT OR REPLACE INTO blob VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, blob.last_used, blob.hits)
        )

    def _write_meta(self, path: Path, fingerprint: str, label: str) -> None:
        other = self.meta("fingerprint")
        if other not in ("", fingerprint):
            raise FolderError(f"{path.parent} is the folder of another model ({other}): give another --cache-dir")
        named = {"fingerprint": fingerprint} | ({"label": label} if label else {})
        if any(self.meta(key) != value for key, value in named.items()):
            with self._transaction():
                self._connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", named.items())

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with _naming_damage():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise


def erase_deleted(connection: sqlite3.Connection) -> None:
    """Writes a database anew and empties its journal: sqlite leaves what was deleted on free pages and in there."""
    connection.execute("VACUUM")
    (is_busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if is_busy:
        error = sqlite3.OperationalError("what was deleted is still in the journal: another process reads the database")
        error.sqlite_errorcode = sqlite3.SQLITE_BUSY  # as sqlite's own errors have one: it is no damage
        raise error


def runs_back(path: HashedPath, end: int) -> Iterator[TokenRun]:
    """The runs of a path up to `end`, the last one first."""
    while end > 0:
        start = run_start(end)
        yield TokenRun(path.tag(end), path.tag(start), start, path.run(end))
        end = start


@contextmanager
def _naming_damage() -> Iterator[None]:
    """Turns errors of sqlite that mean a damaged file, or a full disk, into ours; others pass."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
        if code in _FULL:
            raise FullDiskError from error
        if code & 0xFF in _ENVIRONMENT:
            raise
        raise DamagedIndexError(str(error)) from error


@contextmanager
def _closed_on_error(connection: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise


def _check_format(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the index is new and empty; `NewerFormatError` if a newer leftoff wrote it."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > FORMAT:
        raise NewerFormatError(
            f"{path.parent} was written by a newer leftoff (format {version}, this one knows {FORMAT}): "
            "upgrade leftoff, or give another --cache-dir"
        )
    (num_tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return bool(version == 0 and num_tables == 0)


def _has_types(row: tuple[object, ...], types: Sequence[type]) -> bool:
    """Our tables are STRICT; but a foreign file may have other tables of the same names."""
    return all(type(value) is wanted for value, wanted in zip(row, types, strict=True))


def _is_sound(blob: Blob) -> bool:
    try:
        return blob.name == blob_name(blob.kind, blob.start, blob.tag) and blob.nbytes >= 0 <= blob.start <= blob.end
    except struct.error:
        return False
