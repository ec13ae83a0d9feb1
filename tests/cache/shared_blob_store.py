"""A blob store in memory that two caches share: each finds what the other has put, prompt by prompt."""

from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from leftoff.cache.blob_store import LOWEST, Item, Rank, Record, StoredPath, Wanted
from leftoff.cache.costs import TierCosts
from leftoff.cache.report import Origin
from leftoff.engine.memory.base import WindowPage
from leftoff.engine.seal import span_of
from leftoff.types import Tokens
from tests.cache.chain import WINDOW_TOKENS
from tests.cache.memory_blob_store import Blob, MemoryBlobStore


@dataclass(eq=False)
class SharedStore(MemoryBlobStore):
    """Implements `cache.blob_store.BlobStore`; an item that is put a second time stays as it is.

    What is released before it was written is not stored; later it stays.
    """

    origin: Origin = Origin.STORE
    costs: TierCosts = field(default_factory=lambda: TierCosts(1e5, 0.01, 16, is_probed=True))
    is_shared: bool = True
    searched: list[Wanted] = field(default_factory=list)
    _waiting: set[str] = field(default_factory=set)  # to be written

    def stored_paths(self) -> Iterable[StoredPath]:
        return ()

    def put(self, item: Item, namespace: str, tokens: Tokens, rank: Rank = LOWEST) -> Record | None:
        start, end = span_of(item)
        name = f"{type(item).__name__} {namespace} {start} {tokens[:end].tobytes().hex()}"
        record = Record(name, item.data.nbytes + self.overhead_bytes, self)
        if name not in self.stored:
            self.stored[name] = Blob(item, record, namespace, tokens)
            self._waiting.add(name)
        self.ranks[name] = rank
        return record

    def search(self, wanted: Wanted) -> "Future[StoredPath | None]":
        """The answer is there at once."""
        self.searched.append(wanted)
        blobs = [blob for blob in self.stored.values() if self._is_on_path(blob, wanted)]
        blobs.sort(key=lambda blob: span_of(blob.item)[::-1])
        end = max((span_of(blob.item)[1] for blob in blobs), default=0)
        items = [self.on_medium(blob) for blob in blobs]
        answer: Future[StoredPath | None] = Future()
        found = StoredPath(wanted.namespace, wanted.tokens[:end], items, [0.0] * len(items))
        answer.set_result(found if items else None)
        return answer

    def release(self, record: Record) -> None:
        if record.name in self._waiting:
            self.stored.pop(record.name, None)

    def write(self) -> None:
        """As the writer does when the engine is idle."""
        self._waiting.clear()

    def _is_on_path(self, blob: Blob, wanted: Wanted) -> bool:
        end = span_of(blob.item)[1]
        known = wanted.known - WINDOW_TOKENS if isinstance(blob.item, WindowPage) else wanted.known
        is_new = known < end <= wanted.tokens.size and blob.namespace == wanted.namespace
        return is_new and np.array_equal(blob.tokens[:end], wanted.tokens[:end])
