"""A store on paper: what is put there takes no space, and comes back at once. It counts what was asked for."""

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from itertools import count

from leftoff.cache.blob_store import LOWEST, Item, Rank, Record, StoredPath, Wanted
from leftoff.cache.costs import TierCosts
from leftoff.cache.report import Origin
from leftoff.types import Tokens


class GivenTierCosts(TierCosts):
    """Costs that stay as they are given: a store on paper takes no time that could be measured."""

    def saw_fetch(self, nbytes: int, ms: float, num_blobs: int = 1) -> None: ...


class PaperBlobStore:
    """Implements `cache.blob_store.BlobStore`. `read_bytes` grows with every item that is asked for."""

    origin = Origin.DISK
    is_shared = False
    overhead_bytes = num_waiting = 0
    left_bytes = math.inf

    def __init__(self) -> None:
        self.costs: TierCosts = GivenTierCosts()
        self.read_bytes = self.written_bytes = 0
        self._items: dict[Record, Item] = {}
        self._names = count()

    def stored_paths(self) -> Iterable[StoredPath]:
        return ()

    def search(self, wanted: Wanted) -> "Future[StoredPath | None]":
        raise NotImplementedError

    def put(self, item: Item, namespace: str, tokens: Tokens, rank: Rank = LOWEST) -> Record:  # noqa: ARG002
        record = Record(str(next(self._names)), item.data.nbytes, self)
        self.written_bytes += item.data.nbytes
        self._items[record] = item
        return record

    def promote(self, records: Iterable[Record], rank: Rank) -> None: ...

    def is_waiting(self, record: Record) -> bool:  # noqa: ARG002
        return False

    def get(self, records: Sequence[Record]) -> list[Future[Item]]:
        self.read_bytes += sum(record.nbytes for record in records)
        return [_done(self._items[record]) for record in records]

    def release(self, record: Record) -> None:
        self.remove(record)

    def remove(self, record: Record) -> None:
        del self._items[record]

    def clear(self, is_meant: Callable[[str], bool]) -> "Future[None]":
        raise NotImplementedError

    def record_hits(self, records: Iterable[Record]) -> None: ...

    def hold_back(self, *, is_busy: bool) -> None: ...

    def take_lost(self) -> list[Record]:
        return []

    def close(self, timeout_s: float) -> None: ...


def _done(item: Item) -> Future[Item]:
    future: Future[Item] = Future()
    future.set_result(item)
    return future
