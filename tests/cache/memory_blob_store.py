"""A blob store without a disk: it keeps what it is given, counts its bytes, and loses things when told to."""

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from leftoff.cache.blob_store import LOWEST, Item, Rank, Record, StoredPath, Wanted
from leftoff.cache.costs import TierCosts
from leftoff.cache.report import Origin
from leftoff.engine.errors import BlobError
from leftoff.engine.memory.base import WindowPage
from leftoff.engine.seal import kind_of, made_of, span_of
from leftoff.types import Tokens

OVERHEAD_BYTES = 8


@dataclass(frozen=True)
class Blob:
    item: Item
    record: Record
    namespace: str
    tokens: Tokens


@dataclass(eq=False)
class MemoryBlobStore:
    """Implements `cache.blob_store.BlobStore`. Handed to a second cache, it is what a restart finds."""

    overhead_bytes: int = OVERHEAD_BYTES
    origin: Origin = Origin.DISK
    is_shared: bool = False
    costs: TierCosts = field(default_factory=TierCosts)
    num_waiting: int = 0
    stored: dict[str, Blob] = field(default_factory=dict)
    ranks: dict[str, Rank] = field(default_factory=dict)  # of everything, as if nothing were written yet
    is_full: bool = False
    most_bytes: int = 0
    written_bytes: int = 0
    left_bytes: float = math.inf
    _broken: list[Record] = field(default_factory=list)

    @property
    def used_bytes(self) -> int:
        return sum(blob.record.nbytes for blob in self.stored.values())

    def stored_paths(self) -> Iterable[StoredPath]:
        for blob in sorted(self.stored.values(), key=lambda blob: span_of(blob.item)[1]):
            yield StoredPath(blob.namespace, blob.tokens[: span_of(blob.item)[1]], [self.on_medium(blob)], [0.0])

    def search(self, wanted: Wanted) -> "Future[StoredPath | None]":
        raise AssertionError(f"nobody shares what {wanted.namespace!r} has here")

    def put(self, item: Item, namespace: str, tokens: Tokens, rank: Rank = LOWEST) -> Record | None:
        if self.is_full:
            return None
        start, end = span_of(item)
        name = f"{type(item).__name__} {namespace} {start} {tokens[:end].tobytes().hex()}"
        if isinstance(item, WindowPage) and name in self.stored:
            return self.stored[name].record
        assert name not in self.stored, "put a second time"
        record = Record(name, item.data.nbytes + self.overhead_bytes, self)
        self.ranks[name] = rank
        self.stored[name] = Blob(item, record, namespace, tokens)
        self.most_bytes = max(self.most_bytes, self.used_bytes)
        self.written_bytes += record.nbytes
        return record

    def promote(self, records: Iterable[Record], rank: Rank) -> None:
        for record in records:
            self.ranks[record.name] = max(rank, self.ranks.get(record.name, LOWEST))

    def is_waiting(self, record: Record) -> bool:  # noqa: ARG002
        return False

    def get(self, records: Sequence[Record]) -> list[Future[Item]]:
        return [self._future(record) for record in records]

    def release(self, record: Record) -> None:
        self.remove(record)

    def remove(self, record: Record) -> None:
        self.stored.pop(record.name, None)

    def clear(self, is_meant: Callable[[str], bool]) -> "Future[None]":
        self.stored = {name: blob for name, blob in self.stored.items() if not is_meant(blob.namespace)}
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def record_hits(self, records: Iterable[Record]) -> None: ...

    def hold_back(self, *, is_busy: bool) -> None: ...

    def take_lost(self) -> list[Record]:
        broken, self._broken = self._broken, []
        return broken

    def close(self, timeout_s: float) -> None: ...

    def lose(self, index: int) -> None:
        """As a damaged file does: nobody knows before it is read."""
        if self.stored:
            del self.stored[list(self.stored)[index % len(self.stored)]]

    def break_down(self, index: int) -> None:
        """As a write does that failed: the store says so when it is asked."""
        if self.stored:
            blob = self.stored.pop(list(self.stored)[index % len(self.stored)])
            self._broken.append(blob.record)

    def on_medium(self, blob: Blob) -> Item:
        record = Record(blob.record.name, blob.record.nbytes, self)  # of this store, whoever has put it
        return made_of(kind_of(blob.item), *span_of(blob.item), record)

    def _future(self, record: Record) -> Future[Item]:
        future: Future[Item] = Future()
        if record.name in self.stored:
            future.set_result(self.stored[record.name].item)
        else:
            future.set_exception(BlobError(f"{record.name[:20]} is gone"))
        return future
