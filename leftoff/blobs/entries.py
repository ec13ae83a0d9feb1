"""The table of all blobs that the tier knows, stored or queued for writing: shared by the engine's thread, readers and
writer."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from leftoff.blobs.blob import Blob, Write
from leftoff.cache.blob_store import Record, Worth


@dataclass(eq=False, slots=True)
class Entry(Record):
    """A record and its blob. `write` holds the content until it is written."""

    blob: Blob
    write: Write | None = None
    is_own: bool = True  # no other machine has written it
    worth: Worth = Worth.MIDDLE
    num_failed: int = 0  # batches that it was in
    num_tries: int = 0  # to write it, that failed while others were written
    tried_at: int = -1  # how many others had been written at the last of them


class EntryTable:
    """Entries by name. Every method is atomic."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._lost: list[Record] = []

    def add(self, entry: Entry) -> Entry:
        """Adds an entry, or returns the one of the same name."""
        with self._lock:
            return self._entries.setdefault(entry.name, entry)

    def find(self, name: str) -> Entry | None:
        with self._lock:
            return self._entries.get(name)

    def holds(self, entry: Entry) -> bool:
        return self.find(entry.name) is entry

    def is_written(self, name: str) -> bool:
        """Whether this machine has written the blob. One that a search found may be about to be removed by others."""
        entry = self.find(name)
        return entry is not None and entry.write is None and entry.is_own

    def written_names(self) -> set[str]:
        with self._lock:
            return {entry.name for entry in self._entries.values() if entry.write is None}

    def drop(self, record: Record) -> Entry | None:
        """Removes an entry; None if it was gone already."""
        with self._lock:
            if self._entries.get(record.name) is not record:
                return None
            return self._entries.pop(record.name)

    def lose(self, entries: Iterable[Entry]) -> Sequence[Entry]:
        """Removes entries whose content is lost, and notes them for `take_lost`; returns those that were there."""
        with self._lock:
            lost = [entry for entry in entries if self._entries.get(entry.name) is entry]
            for entry in lost:
                del self._entries[entry.name]
            self._lost += lost
            return lost

    def lose_names(self, names: Iterable[str]) -> None:
        self.lose([entry for entry in map(self.find, names) if entry is not None])

    def take_lost(self) -> list[Record]:
        """Records lost since the last call."""
        with self._lock:
            lost, self._lost = self._lost, []
            return lost
