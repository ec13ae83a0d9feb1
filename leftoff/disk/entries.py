"""The table of all blobs that are stored or queued for writing: shared by the engine's thread, readers and writer."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from leftoff.cache.blob_store import BlobStore, Record
from leftoff.disk.blob import Blob, Write


@dataclass(eq=False, slots=True)
class Entry:
    """A blob and its record. `write` holds the content until it is written.

    `is_known`: the disk tier has the record, and must be told when the blob is lost.
    """

    blob: Blob
    record: Record
    write: Write | None = None
    is_known: bool = False

    @property
    def name(self) -> str:
        return self.blob.name


class EntryTable:
    """Entries by name. Every method is atomic."""

    def __init__(self, blobs: Iterable[Blob], store: BlobStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._entries = {blob.name: Entry(blob, Record(blob.name, blob.file_bytes, store)) for blob in blobs}
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
        return entry is not None and entry.write is None

    def written_names(self) -> set[str]:
        with self._lock:
            return {entry.name for entry in self._entries.values() if entry.write is None}

    def add(self, write: Write) -> Entry:
        blob = write.blob
        entry = Entry(blob, Record(blob.name, blob.file_bytes, self._store), write, is_known=True)
        with self._lock:
            self._entries[blob.name] = entry
        return entry

    def hand_out(self, names: Sequence[str]) -> dict[str, Record]:
        """Records of those that are still there, for the disk tier, which knows them from now on."""
        with self._lock:
            entries = [self._entries[name] for name in names if name in self._entries]
            for entry in entries:
                entry.is_known = True
            return {entry.name: entry.record for entry in entries}

    def mark_written(self, entries: Sequence[Entry]) -> None:
        with self._lock:
            for entry in entries:
                entry.write = None

    def drop(self, record: Record) -> Entry | None:
        """Removes the entry of a record; None if it was gone already."""
        with self._lock:
            entry = self._entries.get(record.name)
            if entry is None or entry.record is not record:
                return None
            return self._entries.pop(record.name)

    def lose(self, entries: Sequence[Entry]) -> list[Entry]:
        """Removes entries whose content is lost, and notes them for `take_lost`; returns those that were there."""
        with self._lock:
            lost = [entry for entry in entries if self._entries.get(entry.name) is entry]
            for entry in lost:
                del self._entries[entry.name]
            self._lost += [entry.record for entry in lost if entry.is_known]
            return lost

    def take_lost(self) -> list[Record]:
        """Records lost since the last call."""
        with self._lock:
            lost, self._lost = self._lost, []
            return lost
