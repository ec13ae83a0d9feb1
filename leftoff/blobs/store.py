"""Pages and snapshots on a medium: implements `leftoff.cache.blob_store.BlobStore`, for any medium.

    engine's thread: put, remove ──> entry table ──> writer's queue ──> writer's thread ──> medium
    reader threads: get <── medium, verified, in buffers of the arena

A medium that fails raises nothing in the engine's thread: what cannot be had is a miss, and is read instead.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Generic, TypeGuard, TypeVar

import numpy as np

from leftoff.blobs import clock
from leftoff.blobs.blob import Blob, Write
from leftoff.blobs.entries import Entry, EntryTable
from leftoff.blobs.medium import GoneError, Medium, PathBlobs, Sharing
from leftoff.blobs.path_hash import HashedPath
from leftoff.blobs.threads import THREADS, Threads
from leftoff.blobs.writer import QueueLimit, Writer
from leftoff.cache.blob_store import LOWEST, Item, Rank, Record, StoredPath, Wanted
from leftoff.cache.costs import TierCosts
from leftoff.cache.report import Origin
from leftoff.engine.errors import BlobError
from leftoff.engine.memory.arena import Arena
from leftoff.engine.seal import SEAL_BYTES
from leftoff.types import Tokens

logger = logging.getLogger("leftoff.blobs")

M = TypeVar("M", bound=Medium)


class MediumBlobStore(Generic[M]):
    """The blobs of one model. Putting an item that is stored already returns its record."""

    overhead_bytes = SEAL_BYTES

    def __init__(
        self,
        origin: Origin,
        medium: M,
        arena: Arena,
        *,
        costs: TierCosts,
        num_readers: int,
        queue_bytes: int | QueueLimit,
        batch_bytes: int,
        retry_s: float,
        gives_way: bool = False,
        sharing: Sharing | None = None,
        problem: Exception | None = None,
        threads: Threads = THREADS,
    ) -> None:
        """With `gives_way`, writing waits while the engine is busy. `sharing` is the medium, if machines share it.

        A medium that had a `problem` when it was opened is opened again later, every `retry_s`.
        """
        self.origin = origin
        self.medium = medium
        self._costs = costs
        self._arena = arena
        self._sharing = sharing
        self.is_shared = sharing is not None
        self._table = EntryTable()
        self._left = [self._with_entries(path) for path in medium.left_paths()]
        self._writer = Writer(
            *(medium, self._table),
            queue_bytes=queue_bytes,
            batch_bytes=batch_bytes,
            retry_s=retry_s,
            gives_way=gives_way,
            is_shared=self.is_shared,
            threads=threads,
        )
        self._readers = threads.pool(num_readers, f"leftoff-{origin.value}-reader")
        self._path = HashedPath("", np.empty(0, np.int32))  # of the item that was put last
        self._has_reported_damage = False
        self._writer.start(problem)

    @property
    def costs(self) -> TierCosts:
        """The costs of a fetch, with the rates that the medium has measured until now."""
        self._costs.expect(self.medium.bytes_per_ms, self.medium.call_ms)
        return self._costs

    @property
    def written_bytes(self) -> int:
        return self._writer.written_bytes

    @property
    def left_bytes(self) -> float:
        return self._writer.left_bytes

    @property
    def num_waiting(self) -> int:
        return self._writer.num_waiting

    # --- finding

    def stored_paths(self) -> Iterator[StoredPath]:
        left, self._left = self._left, []
        for path in left:
            pairs = [(item, age) for item, age in zip(path.items, path.ages_s, strict=True) if self._knows(item.data)]
            if pairs:  # else it was lost meanwhile
                yield StoredPath(path.namespace, path.tokens, [item for item, _ in pairs], [age for _, age in pairs])

    def search(self, wanted: Wanted) -> "Future[StoredPath | None]":
        assert self._sharing is not None
        answer: Future[StoredPath | None] = Future()

        def take(found: "Future[PathBlobs | None]") -> None:
            try:
                path = found.result() if not found.cancelled() else None  # the link may be closed
                answer.set_result(self._with_entries(path) if path is not None else None)
            except Exception:
                logger.exception("an unforeseen error in a search")
                answer.set_result(None)

        self._sharing.search(wanted).add_done_callback(take)
        return answer

    def _with_entries(self, path: PathBlobs) -> StoredPath:
        now = clock.now()
        blobs = sorted(path.blobs, key=lambda blob: (blob.end, blob.start))
        items = [blob.holding(self._table.add(self._entry(blob))) for blob in blobs]
        return StoredPath(path.namespace, path.tokens, items, [max(0.0, now - blob.last_used) for blob in blobs])

    def _knows(self, data: object) -> TypeGuard[Entry]:
        return isinstance(data, Entry) and self._table.holds(data)

    def _entry(self, blob: Blob) -> Entry:
        return Entry(blob.name, blob.file_bytes, self, blob, is_own=not self.is_shared)

    # --- writing

    def put(self, item: Item, namespace: str, tokens: Tokens, rank: Rank = LOWEST) -> Record | None:
        self._path = self._path.reused_for(namespace, tokens)
        blob = Blob.of(item, self._path)
        known = self._table.find(blob.name)
        if known is not None:
            self._writer.promote([known], rank)
            return known
        if not self._writer.has_room(blob.file_bytes, rank):
            return None
        entry = self._entry(blob)
        entry.write, entry.is_own = Write(blob, item, self._path), True
        self._table.add(entry)
        self._writer.put(entry, rank)
        return entry

    def promote(self, records: Iterable[Record], rank: Rank) -> None:
        self._writer.promote([record for record in records if isinstance(record, Entry)], rank)

    def is_waiting(self, record: Record) -> bool:
        return self._knows(record) and record.write is not None

    def record_hits(self, records: Iterable[Record]) -> None:
        self._writer.count_hits([record for record in records if isinstance(record, Entry)])

    def hold_back(self, *, is_busy: bool) -> None:
        self._writer.hold_back(is_busy=is_busy)

    def release(self, record: Record) -> None:
        if (entry := self._table.drop(record)) is not None:
            self._writer.release([entry])

    def remove(self, record: Record) -> None:
        self._table.drop(record)
        if isinstance(record, Entry):
            self._writer.remove([record])

    def clear(self, is_meant: Callable[[str], bool]) -> "Future[None]":
        return self._writer.clear(is_meant)

    def take_lost(self) -> list[Record]:
        return self._table.take_lost()

    # --- reading

    def get(self, records: Sequence[Record]) -> list[Future[Item]]:
        largest_first = sorted(records, key=lambda record: -record.nbytes)  # else the last of them is waited for alone
        futures = {record: self._get(record) for record in largest_first}
        return [futures[record] for record in records]

    def _get(self, record: Record) -> Future[Item]:
        answer: Future[Item] = Future()
        if not self._knows(record):
            answer.set_exception(BlobError(f"{record.name} is not stored any more"))
        elif (write := record.write) is not None:
            answer.set_result(write.item)
        else:
            return self._readers.submit(self._read, record)
        return answer

    def _read(self, entry: Entry) -> Item:
        try:
            return self.medium.read(entry.blob, self._arena)
        except BlobError as error:
            self._drop_damaged(entry, error)
            raise
        except self.medium.problems as error:
            raise BlobError(f"{entry.name} cannot be fetched: {error}") from error

    def _drop_damaged(self, entry: Entry, error: BlobError) -> None:
        """Forgets a blob that cannot be used: it is stored again with the next save of its tokens."""
        if lost := self._table.lose([entry]):
            self._writer.remove(lost)
            if not isinstance(error, GoneError) and not self._has_reported_damage:
                self._has_reported_damage = True
                logger.warning("%s: it is lost and will be computed again; `leftoff cache verify` checks all", error)

    # --- ending

    def flush(self, timeout_s: float) -> bool:
        return self._writer.flush(timeout_s)

    def close(self, timeout_s: float) -> None:
        self._readers.shutdown(wait=False, cancel_futures=True)
        self._writer.stop(timeout_s)
