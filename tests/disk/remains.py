"""What a server that was killed has left in its cache folder: whether it is sound, and what it is good for."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from leftoff.disk.folder import holder
from leftoff.disk.index import FILE
from leftoff.disk.tools.catalog import Catalog
from leftoff.disk.tools.verify import verify_folder
from leftoff.types import Tokens
from tests.disk.stores import blob_files

_LOCKED_S = 0.1  # for which a look waits if the killed one was just about to change everything


class Remains:
    """Looks at one cache folder, also while a server uses it. There is one model's folder in it, or none yet."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.left_over: set[Path] = set()  # files that nobody knows, at the last check
        self.num_seen = 0  # rows, at all checks

    @property
    def folder(self) -> Path:
        (folder,) = self.root.glob("v1/*")
        return folder

    @property
    def holder(self) -> int | None:
        folders = [*self.root.glob("v1/*")]
        return holder(folders[0]) if folders else None

    @property
    def files(self) -> set[Path]:
        return {*blob_files(self.root)}

    @property
    def has_unfinished(self) -> bool:
        return any(path.suffix for path in blob_files(self.root))

    @property
    def log_stat(self) -> tuple[int, int]:
        """Of the index's log, which grows with every change."""
        stat = (self.folder / f"{FILE}-wal").stat()
        return stat.st_size, stat.st_mtime_ns

    def rows(self) -> dict[str, bool]:
        """Names, and whether they are of snapshots: those that others can see, which are none while it is opened."""
        try:
            return dict(self._query('SELECT name, "start" = "end" FROM blob'))
        except sqlite3.OperationalError:
            return {}

    def check(self, seen: dict[str, bool], *, is_roomy: bool) -> None:
        """`seen` are the rows in the moment of the kill."""
        findings = verify_folder(self.folder)
        assert findings.faults == [], findings.faults
        assert not findings.note or not self.num_seen, findings.note
        assert not [*self.folder.glob("index.broken*")]
        assert not self.num_seen or self._query("PRAGMA integrity_check") == [("ok",)]
        rows, files = self.rows(), self.files
        assert rows or not seen, "not everything is removed at once"
        lost = seen.keys() - rows.keys()
        assert lost <= {path.name for path in files}, "a row goes before its file: its removal was under way"
        if is_roomy:
            assert not any(seen[name] for name in lost), "only pages that lead nowhere are removed"
        self.num_seen += len(seen)
        self.left_over = {path for path in files if path.name not in rows}

    def resumable(self, prompt: Tokens) -> int:
        """How far the index says that a prompt is known."""
        if not self.rows():
            return 0
        catalog = Catalog.of(self.folder)
        snapshots = [blob for blob in catalog.blobs if not blob.is_page and blob.end < prompt.size]
        for blob in sorted(snapshots, key=lambda blob: blob.end, reverse=True):
            is_on_the_way = np.array_equal(catalog.tokens_to(blob), prompt[: blob.end])
            if is_on_the_way and catalog.path_to(blob).is_whole:
                return blob.end
        return 0

    def _query(self, query: str) -> list[Any]:
        path = f"file:{self.folder / FILE}?mode=ro"
        with closing(sqlite3.connect(path, uri=True, timeout=_LOCKED_S)) as connection:
            return connection.execute(query).fetchall()
