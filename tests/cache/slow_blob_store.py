"""A blob store that writes only when told to, by rank; when its queue is full it gives up the lowest."""

from dataclasses import dataclass

from leftoff.cache.blob_store import LOWEST, Item, Rank, Record
from leftoff.types import Tokens
from tests.cache.memory_blob_store import MemoryBlobStore
from tests.cache.trees import UNLIMITED


@dataclass(eq=False)
class SlowBlobStore(MemoryBlobStore):
    """What is `waiting` can be read, but a kill loses it."""

    queue_bytes: int = UNLIMITED

    def __post_init__(self) -> None:
        self.written: list[str] = []
        self.waiting: list[str] = []

    def put(self, item: Item, namespace: str, tokens: Tokens, rank: Rank = LOWEST) -> Record | None:
        record = super().put(item, namespace, tokens, rank)
        assert record is not None
        self.written_bytes -= record.nbytes
        self.waiting.append(record.name)
        while self._waiting_bytes > self.queue_bytes:
            lowest = min(self.waiting, key=self.ranks.__getitem__)
            if self.ranks[lowest] == rank:
                self.remove(record)
                return None
            self._broken.append(self.stored[lowest].record)
            self.remove(self.stored[lowest].record)
        return record

    def remove(self, record: Record) -> None:
        super().remove(record)
        self.waiting = [name for name in self.waiting if name != record.name]

    def is_waiting(self, record: Record) -> bool:
        return record.name in self.waiting

    def write(self, nbytes: int) -> None:
        """Writes what comes first, whole items, up to `nbytes`."""
        for name in sorted(self.waiting, key=self.ranks.__getitem__, reverse=True):
            nbytes -= self.stored[name].record.nbytes
            if nbytes < 0:
                return
            self.waiting.remove(name)
            self.written_bytes += self.stored[name].record.nbytes
            self.written.append(name)

    def after_kill(self) -> MemoryBlobStore:
        """What the next process finds."""
        return MemoryBlobStore(stored={name: blob for name, blob in self.stored.items() if name in self.written})

    @property
    def _waiting_bytes(self) -> int:
        return sum(self.stored[name].record.nbytes for name in self.waiting)
