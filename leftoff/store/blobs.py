"""Pages and snapshots in a store that machines share: implements `leftoff.cache.blob_store.SharedBlobStore`.

    engine's thread: search ──> index ──> records        get <── objects, verified, in buffers of the arena
                     put ──> queue ──> object, then index

No failure raises anything in the engine's thread: what cannot be found or fetched is a miss, and is read instead.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from leftoff.cache.blob_store import LOWEST, Item, Rank, Record, StoredPath, Wanted
from leftoff.cache.report import Origin
from leftoff.disk import clock
from leftoff.disk.blob import Blob
from leftoff.disk.path_hash import HashedPath
from leftoff.engine.errors import BlobError
from leftoff.engine.memory.arena import Arena
from leftoff.engine.memory.base import MemoryKind
from leftoff.engine.seal import SEAL_BYTES, unseal
from leftoff.store.index import INDEX_PROBLEMS
from leftoff.store.keys import StoredBlob, namespace_hash
from leftoff.store.link import PROBLEMS, Link, check
from leftoff.store.objects import OBJECT_PROBLEMS, MissingError, ObjectName, Reader
from leftoff.store.prober import Prober
from leftoff.store.replica import STORE_COSTS
from leftoff.store.search import Searcher
from leftoff.store.writer import StoreRecord, StoreWriter
from leftoff.types import Tokens

logger = logging.getLogger("leftoff.store")

NUM_READS = 16  # side by side
_READ_S = 10.0  # for one object
_SEARCH_S = 5.0  # for the index; beyond that nobody waits, whatever has happened
_HEADER_PATIENCE = 20  # times as long as reading would take, while another machine reads the header


class StoreBlobs:
    """The blobs of one fingerprint."""

    origin = Origin.STORE

    def __init__(
        self,
        link: Link,
        prober: Prober,
        fingerprint: str,
        arena: Arena,
        kind: MemoryKind,
        *,
        queue_bytes: int,
        window_tokens: int = 0,
    ) -> None:
        self.link = link
        self.shared = self
        self.costs = replace(STORE_COSTS)
        self._fingerprint = fingerprint
        self._arena = arena
        self.writer = StoreWriter(link, fingerprint, queue_bytes)
        self.take_lost = self.writer.take_lost
        self._searcher = Searcher(link, kind, window_tokens)
        self._reads = asyncio.Semaphore(NUM_READS)
        self._verifiers = ThreadPoolExecutor(2, thread_name_prefix="leftoff-store-verify")
        self._path = HashedPath("", np.empty(0, np.int32))  # of the item that was put last
        self._prober = prober
        self._has_reported_damage = False

    @property
    def overhead_bytes(self) -> int:
        return SEAL_BYTES

    @property
    def bytes_per_ms(self) -> float | None:
        """Of one object alone: several at once are faster."""
        return self._prober.bytes_per_ms

    @property
    def written_bytes(self) -> int:
        return self.writer.written_bytes

    @property
    def left_bytes(self) -> float:
        return math.inf

    @property
    def call_ms(self) -> float | None:
        return self._prober.call_ms

    @property
    def num_waiting(self) -> int:
        return self.writer.num_waiting

    def stored_paths(self) -> Iterable[StoredPath]:
        """Nothing: the index of a fleet is too large to load, and prompts are searched for."""
        return ()

    # --- looking up

    def search(self, wanted: Wanted) -> "Future[StoredPath | None]":
        return self.link.call(self._search(wanted))

    async def _search(self, wanted: Wanted) -> StoredPath | None:
        patience_s = _SEARCH_S + (_HEADER_PATIENCE * wanted.read_ms / 1000 if wanted.header_end else 0)
        try:
            check(self.link.index_breaker)
            check(self.link.reads)
            async with asyncio.timeout(patience_s):
                with self.link.index_breaker.watching(*INDEX_PROBLEMS):
                    path = HashedPath(wanted.namespace, wanted.tokens)
                    found = await self._searcher.header(path, wanted, self.writer.hold_lease)
        except PROBLEMS:
            return None
        except Exception:
            logger.exception("an unforeseen error in a search of the store")
            return None
        if not found.blobs:
            return None
        items = [self._item(blob, path) for blob in found.blobs]
        end = max(blob.end for blob in found.blobs)
        return StoredPath(wanted.namespace, wanted.tokens[:end].copy(), items, [0.0] * len(items))

    def _item(self, stored: StoredBlob, path: HashedPath) -> Item:
        nbytes = max(0, stored.nbytes - SEAL_BYTES)
        blob = Blob(
            *(stored.name, stored.kind, stored.tag, path.namespace, stored.start, stored.end),
            *(nbytes, clock.now(), 0),
        )
        return blob.holding(StoreRecord(blob.name, stored.nbytes, self, blob=blob, object=ObjectName.of(blob, path)))

    # --- writing

    def put(self, item: Item, namespace: str, tokens: Tokens, rank: Rank = LOWEST) -> Record | None:
        self._path = self._path.reused_for(namespace, tokens)
        blob = Blob.of(item, self._path)
        known = self.writer.find(blob.name)
        if known is not None:
            self.writer.promote([known], rank)
            return known
        name = ObjectName.of(blob, self._path)
        record = StoreRecord(blob.name, blob.file_bytes, self, blob=blob, object=name, item=item)
        return record if self.writer.put(record, rank) else None

    def promote(self, records: Iterable[Record], rank: Rank) -> None:
        self.writer.promote([record for record in records if isinstance(record, StoreRecord)], rank)

    def record_hits(self, records: Iterable[Record]) -> None:
        self.promote(records, LOWEST)

    def is_waiting(self, record: Record) -> bool:
        return isinstance(record, StoreRecord) and record.item is not None

    def hold_back(self, *, is_busy: bool) -> None:
        """Does nothing: writing never waits, since the next turn may go to another machine."""

    def release(self, record: Record) -> None:
        if isinstance(record, StoreRecord):
            self.writer.cancel(record)

    def remove(self, record: Record) -> None:
        if isinstance(record, StoreRecord):
            self.writer.cancel(record)
            self.link.call(self.link.remove([record.object]))

    def clear(self, is_meant: Callable[[str], bool]) -> None:
        self.link.call(self._clear(is_meant))

    async def _clear(self, is_meant: Callable[[str], bool]) -> None:
        try:
            for namespace in filter(is_meant, await self.link.index.namespaces()):
                prefix = f"{self.link.group}/{namespace_hash(namespace)}"
                async for objects in self.link.objects.listed(prefix):
                    names = [ObjectName.parse(f"{namespace_hash(namespace)}/{each.name}") for each in objects]
                    await self.link.remove([name for name in names if name is not None])
        except PROBLEMS as error:
            logger.error("what was to be removed from the store is still there (%s): delete it again", error)

    # --- reading

    def get(self, records: Sequence[Record]) -> list["Future[Item]"]:
        return [self._get(record) for record in records]

    def _get(self, record: Record) -> "Future[Item]":
        assert isinstance(record, StoreRecord)
        item = record.item
        if item is None:
            return self.link.call(self._read(record))
        answer: Future[Item] = Future()
        answer.set_result(item)
        return answer

    async def _read(self, record: StoreRecord) -> Item:
        """Raises `BlobError` whatever the reason: the tier then forgets the record."""
        try:
            check(self.link.reads)
            async with self._reads:
                with self.link.reads.watching(*OBJECT_PROBLEMS):
                    async with asyncio.timeout(_READ_S):
                        got = await self.link.objects.get(f"{self.link.group}/{record.object}")
            return await self.link.loop.run_in_executor(self._verifiers, self._verified, record.blob, got.data)
        except MissingError as error:
            await self._drop(record)
            raise BlobError(f"{record.object} is not stored any more") from error
        except BlobError as error:
            await self._drop(record)
            self._report_damage(record, error)
            raise
        except OBJECT_PROBLEMS as error:
            raise BlobError(f"{record.object} cannot be fetched: {error}") from error

    def _verified(self, blob: Blob, data: memoryview) -> Item:
        item = unseal(Reader(data), data.nbytes, self._fingerprint, self._arena, blob.tag)
        blob.check(item)
        return item

    async def _drop(self, record: StoreRecord) -> None:
        """Removes a blob that is damaged or gone, so that whoever has its state stores it again."""
        try:
            await self.link.remove([record.object])
        except PROBLEMS:
            return  # the next who fetches it will try again

    def _report_damage(self, record: StoreRecord, error: Exception) -> None:
        if not self._has_reported_damage:
            self._has_reported_damage = True
            logger.warning("%s was removed and will be computed again: %s", record.object, error)

    # --- ending

    def flush(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while self.writer.num_waiting and time.monotonic() < deadline and not self._is_failing:
            time.sleep(0.01)
        return not self.writer.num_waiting

    def close(self, timeout_s: float) -> None:
        self.flush(timeout_s)
        self.writer.close()
        self._verifiers.shutdown(wait=False, cancel_futures=True)

    @property
    def _is_failing(self) -> bool:
        return self.link.writes.is_failing or self.link.index_breaker.is_failing
