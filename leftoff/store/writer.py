"""Write-behind to the shared store: the highest rank first, several blobs at a time, each into the index after its put.

A store that is down for a moment loses nothing: what waits is tried again, as far as the queue has room for it.
"""

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from leftoff.cache.blob_store import Item, Rank, Record, Worth
from leftoff.disk.blob import Blob
from leftoff.disk.queue import WriteQueue
from leftoff.engine.memory.arena import view_of
from leftoff.engine.seal import seal
from leftoff.store.index import INDEX_PROBLEMS
from leftoff.store.link import PROBLEMS, Link, check
from leftoff.store.objects import OBJECT_PROBLEMS, ObjectName

logger = logging.getLogger("leftoff.store")

_NUM_WRITERS = 8
_MOST_TRIES = 20  # of one blob, while others are written: it may be too large for the store
_TOUCH_S = 2.0
_RETRY_S = 1.0


@dataclass(eq=False, slots=True, kw_only=True)
class StoreRecord(Record):
    """A record of the shared store: the blob and its object; `item` is its content until it is written."""

    blob: Blob
    object: ObjectName
    item: Item | None = None
    worth: Worth = Worth.MIDDLE
    num_tries: int = 0


@dataclass
class Lease:
    """On reading a prompt up to some position: it is renewed as long as something more of it is stored."""

    ttl_ms: float
    num_written: int  # when it was renewed last
    is_stored: bool = False  # a blob that ends at the position is


class StoreWriter:
    """Methods without `async` may be called from any thread, and return at once."""

    def __init__(self, link: Link, fingerprint: str, queue_bytes: int) -> None:
        self._link = link
        self._fingerprint = fingerprint
        self._queue_bytes = queue_bytes
        self._queue: WriteQueue[StoreRecord] = WriteQueue()
        self._waiting: dict[str, StoreRecord] = {}  # also those in hand
        self._in_hand_bytes = 0
        self._touched: dict[str, StoreRecord] = {}
        self._leases: dict[bytes, Lease] = {}
        self._num_written = 0
        self.written_bytes = 0
        self._lost: list[Record] = []
        self._lock = threading.Lock()
        self._wake = asyncio.Event()
        self._seals = ThreadPoolExecutor(2, thread_name_prefix="leftoff-store-seal")
        self._is_closed = False
        for _ in range(_NUM_WRITERS):
            link.start(self._write_all())
        link.start(self._touch_all())

    def find(self, name: str) -> StoreRecord | None:
        """The record of a blob that still waits."""
        with self._lock:
            return self._waiting.get(name)

    def put(self, record: StoreRecord, rank: Rank) -> bool:
        """False if the queue is full of higher ranks."""
        with self._lock:
            waiting_bytes = self._queue.nbytes + self._in_hand_bytes
            kept_bytes = waiting_bytes - self._queue.bytes_below(rank)
            if self._is_closed or (kept_bytes and kept_bytes + record.nbytes > self._queue_bytes):
                return False
            for other in self._queue.give_up(waiting_bytes + record.nbytes - self._queue_bytes, rank):
                self._lose(other)
            record.worth = rank.worth
            self._queue.put(record, rank)
            self._waiting[record.name] = record
        self._link.loop.call_soon_threadsafe(self._wake.set)
        return True

    def promote(self, records: list[StoreRecord], rank: Rank) -> None:
        """Raises the rank of those that wait; the index is told that the others were used."""
        with self._lock:
            for record in records:
                record.worth = max(record.worth, rank.worth)
                if record.item is None:
                    self._touched[record.name] = record
                else:
                    self._queue.promote(record, rank)

    def cancel(self, record: StoreRecord) -> None:
        """Does not write it, if that has not begun."""
        with self._lock:
            if record in self._queue:
                self._queue.remove(record)
                self._waiting.pop(record.name, None)

    def hold_lease(self, key: bytes, ttl_ms: float) -> None:
        """Renews a lease on reading while more is stored, and releases it once the end and all that waits is."""
        with self._lock:
            self._leases[key] = Lease(ttl_ms, self._num_written)

    def take_lost(self) -> list[Record]:
        with self._lock:
            lost, self._lost = self._lost, []
            return lost

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        self._seals.shutdown(wait=False, cancel_futures=True)

    # --- on the loop

    async def _write_all(self) -> None:
        while True:
            self._wake.clear()
            record = self._next()
            if record is None:
                await self._release_leases()
                await self._wake.wait()
                continue
            try:
                await self._write(record)
            except PROBLEMS:
                self._try_again(record)
                await asyncio.sleep(_RETRY_S)
            except Exception:  # the task must live: without it the store would silently stop
                logger.exception("%s could not be stored", record.object)
                self._give_up(record)

    def _next(self) -> StoreRecord | None:
        with self._lock:
            if not self._queue:
                return None
            record = self._queue.pop()
            self._in_hand_bytes += record.nbytes
            return record

    async def _write(self, record: StoreRecord) -> None:
        link, item = self._link, record.item
        assert item is not None
        check(link.index_breaker)
        with link.index_breaker.watching(*INDEX_PROBLEMS):
            is_there = await link.index.has(record.object)
        if not is_there:
            content = await link.loop.run_in_executor(self._seals, self._sealed, record.blob, item)
            with link.writes.watching(*OBJECT_PROBLEMS):
                await link.objects.put(f"{link.group}/{record.object}", content)
            self.written_bytes += record.nbytes
        with link.index_breaker.watching(*INDEX_PROBLEMS):
            await link.index.add(record.object, record.nbytes, record.worth, record.blob.namespace)
        with self._lock:
            record.item = None
            self._in_hand_bytes -= record.nbytes
            self._waiting.pop(record.name, None)
            self._num_written += 1
            lease = self._leases.get(link.index.keys.reading(record.object.tag))
            if lease is not None:
                lease.is_stored = True

    def _sealed(self, blob: Blob, item: Item) -> bytearray:
        content = bytearray(seal(item, self._fingerprint, blob.tag))
        content += view_of(item.data).data
        return content

    def _try_again(self, record: StoreRecord) -> None:
        """Puts a record that failed back into the queue, by its worth; after too many tries it is lost."""
        with self._lock:
            self._in_hand_bytes -= record.nbytes
            record.num_tries += not self._link.writes.is_failing and not self._link.index_breaker.is_failing
            if record.num_tries < _MOST_TRIES:
                self._queue.put(record, Rank(record.worth))
            else:
                self._lose(record)

    def _give_up(self, record: StoreRecord) -> None:
        with self._lock:
            self._in_hand_bytes -= record.nbytes
            self._lose(record)

    def _lose(self, record: StoreRecord) -> None:
        self._waiting.pop(record.name, None)
        record.item = None
        self._lost.append(record)

    async def _release_leases(self) -> None:
        with self._lock:
            leases = [key for key, lease in self._leases.items() if lease.is_stored and not self._waiting]
            for key in leases:
                del self._leases[key]
        for key in leases:
            try:
                await self._link.index.release_lease(key)
            except INDEX_PROBLEMS:
                return  # it expires by itself

    async def _touch_all(self) -> None:
        while True:
            await asyncio.sleep(_TOUCH_S)
            with self._lock:
                touched, self._touched = self._touched, {}
            if self._link.index_breaker.is_failing:
                continue
            try:
                with self._link.index_breaker.watching(*INDEX_PROBLEMS):
                    await self._touch([*touched.values()])
                    await self._renew_leases()
            except INDEX_PROBLEMS:
                continue

    async def _touch(self, records: list[StoreRecord]) -> None:
        """Tells the index that blobs were used. Those that it no longer knows were collected, and are stored again."""
        are_known = await self._link.index.touch([(each.object, each.worth) for each in records])
        with self._lock:
            self._lost += [each for each, is_known in zip(records, are_known, strict=True) if not is_known]

    async def _renew_leases(self) -> None:
        with self._lock:
            num_written = self._num_written
            leases = {key: lease for key, lease in self._leases.items() if lease.num_written < num_written}
        for key, lease in leases.items():
            lease.num_written = num_written
            if not await self._link.index.renew_lease(key, lease.ttl_ms):
                with self._lock:
                    self._leases.pop(key, None)
