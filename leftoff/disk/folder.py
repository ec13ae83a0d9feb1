"""The folder of one model: its lock, its index and its blobs, of which the last two say the same.

    <cache dir>/v1/<fingerprint>/lock, index.sqlite, blobs/ab/<name>

A newer layout would be v2, beside it. A file is there before its row, and longer: what a crash leaves between the two
is a file nobody knows, and goes when the folder is opened.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from leftoff.disk import clock
from leftoff.disk.errors import DamagedIndexError
from leftoff.disk.files import BlobFiles, Write, check_own, make_folder
from leftoff.disk.index import FILE, Addition, Content, Index, Usage
from leftoff.disk.lock import FolderLock
from leftoff.types import Tokens

LAYOUT = "v1"
BLOBS = "blobs"
_FINGERPRINT_DIGITS = 16
_KEPT_BROKEN = 3


def model_folder(root: Path, fingerprint: str) -> Path:
    return root / LAYOUT / fingerprint[:_FINGERPRINT_DIGITS]


@dataclass(frozen=True)
class Arrival(Write):
    """A blob to be written, with the path it lies on."""

    tokens: Tokens


class ModelFolder:
    """Blocks, and raises `OSError`, `sqlite3.Error` or `DamagedIndexError`. Used by one thread at a time."""

    def __init__(self, path: Path, fingerprint: str, label: str = "", reserve_bytes: int | None = None) -> None:
        self.path = path
        self.files = BlobFiles(self.path / BLOBS, fingerprint, reserve_bytes)
        self._fingerprint = fingerprint
        self._label = label
        self._lock: FolderLock | None = None
        self._index: Index | None = None
        self._identity: os.stat_result | None = None

    def open(self, *, anew: bool = False) -> Path | None:
        """Takes it for this process. An index that is damaged, or said to be, is set aside: returned is where it is."""
        make_folder(self.path / BLOBS)
        check_own(self.path)
        check_own(self.path / BLOBS)
        if self._lock is None or not self._lock.is_current():
            self._let_go()
            self._lock = FolderLock.take(self.path)
        broken = self._set_aside() if anew else None
        try:
            self._index = self._open_index()
        except DamagedIndexError:
            broken = self._set_aside()
            self._index = self._open_index()
        self._index.set_back(clock.now())
        self._identity = (self.path / FILE).stat()
        return broken

    def close(self) -> None:
        self.close_index()
        self._let_go()

    def close_index(self) -> None:
        if self._index is not None:
            self._index.close()
            self._index = None

    def peek(self) -> Content:
        """What can be read of it although it could not be opened: perhaps nothing."""
        try:
            with closing(Index.look(self.path / FILE)) as index:
                return index.content()
        except (OSError, DamagedIndexError):
            return Content([], [])

    @property
    def index(self) -> Index:
        assert self._index is not None, f"{self.path} is not open"
        return self._index

    def add(self, arrivals: Sequence[Arrival]) -> None:
        """Safe from the loss of power when it returns."""
        self._check_identity()
        self.files.write(arrivals)
        self.index.add(Addition(arrival.blob, arrival.tokens) for arrival in arrivals)

    def remove(self, names: Collection[str]) -> None:
        self.index.remove(names)
        self.files.remove(names)

    def note(self, usages: Mapping[str, Usage]) -> None:
        self.index.note(usages)

    def reconcile(self, wanted: Collection[str]) -> set[str]:
        """Removes all but the blobs that are wanted, by their names; returns the wanted ones that are not here."""
        rows = self.index.names()
        here = rows & self.files.present() & {*wanted}
        if rows - here:
            self.index.remove(rows - here)
            self.index.drop_unreachable_runs()
        self.files.keep_only(here)
        return {*wanted} - here

    def _open_index(self) -> Index:
        return Index.open(self.path / FILE, self._fingerprint, self._label)

    def _check_identity(self) -> None:
        """sqlite goes on writing to a file that was removed, and all of it would be lost."""
        assert self._identity is not None
        if not os.path.samestat(self._identity, (self.path / FILE).stat()):
            raise FileNotFoundError(f"{self.path / FILE} was replaced")

    def _set_aside(self) -> Path:
        """Renamed, for whoever wants to find out what happened; the oldest make room."""
        self.close_index()
        numbers = range(1, _KEPT_BROKEN + 1)
        free = next((number for number in numbers if not self._broken(number).exists()), _KEPT_BROKEN)
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                (self.path / (FILE + suffix)).replace(f"{self._broken(free)}{suffix}")
        return self._broken(free)

    def _broken(self, number: int) -> Path:
        return self.path / f"index.broken-{number}"

    def _let_go(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None
