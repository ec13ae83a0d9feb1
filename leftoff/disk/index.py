"""What lies on the shelf, in sqlite: the blobs, and the tokens of their paths, so that no blob need be read to know it.

A path is kept as runs on a fixed grid: full cells follow each other by their tags, and the rest up to the end of an
item is a run of its own. So paths share what they share, and a run is in the index whenever one that follows on it is.

Commits are synced (`synchronous=FULL`): with the files synced before, what was acknowledged outlives the loss of power,
not only of the process.
"""

import os
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from leftoff.disk.blob import Blob, blob_name
from leftoff.disk.errors import DamagedIndexError, FolderError, NewerFormatError
from leftoff.disk.files import FILE_MODE
from leftoff.disk.path_hash import CELL_TOKENS, Chain, as_bytes
from leftoff.types import Tokens

FORMAT = 1
FILE = "index.sqlite"
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

_RUN_TYPES = (bytes, bytes, int, bytes)
_BLOB_TYPES = (str, int, bytes, str, int, int, int, float, int)

# What the disk or the system does to us: everything else that sqlite reports is the fault of the file.
_ENVIRONMENT = {
    *(sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY),
    *(sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL),
}


@dataclass(frozen=True, slots=True)
class Run:
    """Tokens [start, start + n) of a path; `tag` names the path up to their end, `parent` that before them."""

    tag: bytes
    parent: bytes
    start: int
    tokens: bytes | memoryview


@dataclass(frozen=True)
class Addition:
    """A blob, and the path it lies on."""

    blob: Blob
    tokens: Tokens


@dataclass(frozen=True)
class Usage:
    """How often a blob was of use since it was written down last, and when at last."""

    last_used: float
    hits: int


@dataclass(frozen=True)
class Content:
    """Everything an index knows."""

    blobs: list[Blob]
    runs: list[Run]


class Index:
    """One connection. Used by one thread at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def open(cls, path: Path, fingerprint: str, label: str) -> "Index":
        """Makes it if it is not there. `DamagedIndexError` and `FolderError` leave it as it is."""
        os.close(
            os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, FILE_MODE)
        )  # sqlite's own files take their mode from it
        connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        with _closed_on_error(connection), damage_is_named():
            is_new = _check_format(connection, path)
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            index = cls(connection)
            if is_new:
                connection.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {FORMAT}; COMMIT")
            index._introduce(path, fingerprint, label)
        return index

    @classmethod
    def look(cls, path: Path) -> "Index":
        """To read only, also while another process writes, or where nothing can be written."""
        path.stat()
        for how in ("mode=ro", "mode=ro&immutable=1"):
            connection = sqlite3.connect(
                f"file:{quote(str(path))}?{how}", uri=True, timeout=_BUSY_S, isolation_level=None
            )
            with suppress(sqlite3.OperationalError), _closed_on_error(connection), damage_is_named():
                if _check_format(connection, path):
                    raise FileNotFoundError(f"{path} is empty: whoever made it was stopped at once")
                return cls(connection)
        raise PermissionError(f"{path} cannot be read")

    def close(self) -> None:
        self._connection.close()

    # --- what it knows

    def meta(self, key: str) -> str:
        rows = self._rows("SELECT value FROM meta WHERE key = ?", key)
        return str(rows[0][0]) if rows else ""

    def content(self) -> Content:
        """Blobs first: the path of each is in the index before it is, whatever another process adds meanwhile."""
        blobs = self.blobs()
        rows = self._rows("SELECT tag, parent, start, tokens FROM run")
        return Content(blobs, [Run(*row) for row in rows if _has_types(row, _RUN_TYPES)])

    def blobs(self) -> list[Blob]:
        """Rows that name themselves wrongly are left out: they are damaged."""
        rows = self._rows('SELECT name, kind, tag, namespace, "start", "end", nbytes, last_used, hits FROM blob')
        return [blob for blob in (Blob(*row) for row in rows if _has_types(row, _BLOB_TYPES)) if _is_sound(blob)]

    def names(self) -> set[str]:
        return {name for (name,) in self._rows("SELECT name FROM blob")}

    def has(self, name: str) -> bool:
        return bool(self._rows("SELECT 1 FROM blob WHERE name = ?", name))

    # --- what changes it: each in one transaction, safe when it returns

    def add(self, additions: Iterable[Addition]) -> None:
        with self._transaction():
            for addition in additions:
                self._add_path(addition)
                self._add_blob(addition.blob)

    def remove(self, names: Iterable[str]) -> None:
        with self._transaction():
            self._connection.executemany("DELETE FROM blob WHERE name = ?", [(name,) for name in names])

    def set_back(self, latest: float) -> None:
        """What was used in the future was used at `latest`: the clock was wrong then. Else it would stay for years."""
        late = "last_used > ? OR last_used != last_used"
        if self._rows(f"SELECT 1 FROM blob WHERE {late} LIMIT 1", latest):
            with self._transaction():
                self._connection.execute(f"UPDATE blob SET last_used = ? WHERE {late}", (latest, latest))

    def note(self, usages: Mapping[str, Usage]) -> None:
        rows = [(usage.last_used, usage.hits, name) for name, usage in usages.items()]
        with self._transaction():
            self._connection.executemany("UPDATE blob SET last_used = ?, hits = hits + ? WHERE name = ?", rows)

    def drop_unreachable_runs(self) -> None:
        with self._transaction():
            self._connection.execute(_DROP_RUNS)
        with damage_is_named():
            self._connection.executescript("PRAGMA incremental_vacuum")  # `execute` would free one page

    def _rows(self, query: str, *values: str | float) -> list[Any]:
        with damage_is_named():
            return self._connection.execute(query, values).fetchall()

    def _add_path(self, addition: Addition) -> None:
        for run in reversed(runs_of(addition.blob.namespace, addition.tokens[: addition.blob.end])):
            row = (run.tag, run.parent, run.start, run.tokens)
            if not self._connection.execute("INSERT OR IGNORE INTO run VALUES (?, ?, ?, ?)", row).rowcount:
                return  # then all before it are there as well

    def _add_blob(self, blob: Blob) -> None:
        row = (blob.name, blob.kind, blob.tag, blob.namespace, blob.start, blob.end, blob.nbytes, blob.file_bytes)
        self._connection.execute(
            "INSERT OR REPLACE INTO blob VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, blob.last_used, blob.hits)
        )

    def _introduce(self, path: Path, fingerprint: str, label: str) -> None:
        other = self.meta("fingerprint")
        if other not in ("", fingerprint):
            raise FolderError(f"{path.parent} is the folder of another model ({other}): give another --cache-dir")
        named = {"fingerprint": fingerprint} | ({"label": label} if label else {})
        if any(self.meta(key) != value for key, value in named.items()):
            with self._transaction():
                self._connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", named.items())

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with damage_is_named():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise


def runs_of(namespace: str, tokens: Tokens) -> list[Run]:
    """The path of `tokens` in runs, in one pass."""
    chain = Chain(namespace)
    runs, parent = [], chain.tag
    for start in range(0, tokens.size, CELL_TOKENS):
        content = as_bytes(tokens[start : start + CELL_TOKENS])
        tag = chain.read(content).tag
        runs.append(Run(tag, parent, start, content))
        parent = tag
    return runs


@contextmanager
def damage_is_named() -> Iterator[None]:
    """Tells a damaged file from a disk that fails."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
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
    """Whether it is new and empty."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > FORMAT:
        raise NewerFormatError(
            f"{path.parent} was written by a newer leftoff (format {version}, this one knows {FORMAT}): "
            "upgrade leftoff, or give another --cache-dir"
        )
    (num_tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return bool(version == 0 and num_tables == 0)


def _has_types(row: tuple[object, ...], types: Sequence[type]) -> bool:
    """Our own tables let no others in; a file from elsewhere may have tables of its own under the same names."""
    return all(type(value) is wanted for value, wanted in zip(row, types, strict=True))


def _is_sound(blob: Blob) -> bool:
    try:
        return blob.name == blob_name(blob.kind, blob.start, blob.tag) and blob.nbytes >= 0 <= blob.start <= blob.end
    except struct.error:
        return False
