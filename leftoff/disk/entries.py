"""What is on the shelf or on its way there: the table that the engine's thread, the readers and the writer share."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from leftoff.cache.blob_store import Item, Record
from leftoff.disk.blob import Blob


@dataclass(eq=False, slots=True)
class Entry:
    """A blob and its record. The item is here until it is written. The tier need not hear of what it does not know."""

    blob: Blob
    record: Record
    item: Item | None = None
    is_known: bool = False

    @property
    def name(self) -> str:
        return self.blob.name


class Ledger:
    """Every method is one step that no thread sees half of."""

    def __init__(self, blobs: Iterable[Blob]) -> None:
        self._lock = threading.Lock()
        self._entries = {blob.name: Entry(blob, Record(blob.name, blob.file_bytes)) for blob in blobs}
        self._lost: list[Record] = []

    def find(self, name: str) -> Entry | None:
        with self._lock:
            return self._entries.get(name)

    def find_all(self, names: Iterable[str]) -> list[Entry]:
        return [entry for entry in map(self.find, names) if entry is not None]

    def holds(self, entry: Entry) -> bool:
        return self.find(entry.name) is entry

    def has_file(self, name: str) -> bool:
        entry = self.find(name)
        return entry is not None and entry.item is None

    def written_names(self) -> set[str]:
        with self._lock:
            return {entry.name for entry in self._entries.values() if entry.item is None}

    def add(self, blob: Blob, item: Item) -> Entry:
        entry = Entry(blob, Record(blob.name, blob.file_bytes), item, is_known=True)
        with self._lock:
            self._entries[blob.name] = entry
        return entry

    def hand_out(self, names: Sequence[str]) -> dict[str, Record]:
        """The records of those that are still there, known to the tier from now on."""
        with self._lock:
            entries = [self._entries[name] for name in names if name in self._entries]
            for entry in entries:
                entry.is_known = True
            return {entry.name: entry.record for entry in entries}

    def has_written(self, entries: Sequence[Entry]) -> None:
        with self._lock:
            for entry in entries:
                entry.item = None

    def drop(self, record: Record) -> Entry | None:
        """None if it was gone already."""
        with self._lock:
            entry = self._entries.get(record.name)
            if entry is None or entry.record is not record:
                return None
            return self._entries.pop(record.name)

    def lose(self, entries: Sequence[Entry]) -> list[Entry]:
        """They hold nothing any more, and the tier will hear of it: returned are those it does not know of yet."""
        with self._lock:
            lost = [entry for entry in entries if self._entries.get(entry.name) is entry]
            for entry in lost:
                del self._entries[entry.name]
            self._lost += [entry.record for entry in lost if entry.is_known]
            return lost

    def take_lost(self) -> list[Record]:
        with self._lock:
            lost, self._lost = self._lost, []
            return lost
