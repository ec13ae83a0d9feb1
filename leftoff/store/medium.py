"""A store that machines share as the medium of a blob store: objects, and an index of them in Redis or Valkey.

    search ──> index ──> blobs        read <── object        write ──> object, then index

An index that is down for a moment, or a store, loses nothing: the writer keeps what waits.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import replace

from leftoff.blobs.blob import Blob, Write
from leftoff.blobs.medium import GoneError, PathBlobs, Use
from leftoff.blobs.path_hash import HashedPath
from leftoff.blobs.store import MediumBlobStore
from leftoff.cache.blob_store import Item, Wanted
from leftoff.cache.report import Origin
from leftoff.engine.memory.arena import Arena, view_of
from leftoff.engine.memory.base import MemoryKind
from leftoff.engine.seal import seal, unseal
from leftoff.store.index import INDEX_PROBLEMS
from leftoff.store.keys import namespace_hash
from leftoff.store.leases import ReadingLeases
from leftoff.store.link import PROBLEMS, Link, check
from leftoff.store.objects import OBJECT_PROBLEMS, STORE_COSTS, Got, MissingError, ObjectName, Reader
from leftoff.store.prober import Prober
from leftoff.store.search import LEASE_MARGIN_MS, Searcher

logger = logging.getLogger("leftoff.store")

_NUM_READERS = int(STORE_COSTS.calls_at_once)
_NUM_WRITES = 8  # side by side
_BATCH_BYTES = 64 << 20
_RETRY_S = 1.0
_READ_S = 10.0  # for one object
_SEARCH_S = 5.0  # for the index; beyond that nobody waits, whatever has happened
_HEADER_PATIENCE = 20  # times as long as reading would take, while another machine reads the header


class ObjectMedium:
    """Implements `blobs.medium.Medium` and `Sharing` for the blobs of one fingerprint. Made by `open_store`."""

    problems = (*PROBLEMS, CancelledError)
    left_bytes = math.inf

    def __init__(
        self,
        link: Link,
        prober: Prober,
        fingerprint: str,
        kind: MemoryKind,
        window_tokens: int = 0,
        lease_margin_ms: float = LEASE_MARGIN_MS,
    ) -> None:
        self.link = link
        self._prober = prober
        self._fingerprint = fingerprint
        self._searcher = Searcher(link, kind, window_tokens, lease_margin_ms)
        self._leases = ReadingLeases(link.index)
        self._writes = asyncio.Semaphore(_NUM_WRITES)
        self._seals = ThreadPoolExecutor(2, thread_name_prefix="leftoff-store-seal")

    @property
    def bytes_per_ms(self) -> float | None:
        """Of one object alone: several at once are faster."""
        return self._prober.bytes_per_ms

    @property
    def call_ms(self) -> float | None:
        return self._prober.call_ms

    def left_paths(self) -> Iterable[PathBlobs]:
        """Nothing: the index of a fleet is too large to load, and prompts are searched for."""
        return ()

    # --- searching

    def search(self, wanted: Wanted) -> "Future[PathBlobs | None]":
        return self.link.call(self._search(wanted))

    async def _search(self, wanted: Wanted) -> PathBlobs | None:
        patience_s = _SEARCH_S + (_HEADER_PATIENCE * wanted.read_ms / 1000 if wanted.header_end else 0)
        path = HashedPath(wanted.namespace, wanted.tokens)
        try:
            check(self.link.index_breaker)
            check(self.link.reads)
            async with asyncio.timeout(patience_s):
                with self.link.index_breaker.watching(*INDEX_PROBLEMS):
                    found = await self._searcher.header(path, wanted, self._leases.hold)
        except PROBLEMS:
            return None
        if not found.blobs:
            return None
        end = max(blob.end for blob in found.blobs)
        return PathBlobs(wanted.namespace, wanted.tokens[:end].copy(), found.blobs)

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

    def read(self, blob: Blob, arena: Arena) -> Item:
        name = ObjectName.of(blob)
        try:
            data = self.link.call(self._get(name)).result().data
        except MissingError as error:
            raise GoneError(f"{name} is not stored any more") from error
        item = unseal(Reader(data), data.nbytes, self._fingerprint, arena, blob.tag)
        blob.check(item)
        return item

    async def _get(self, name: ObjectName) -> Got:
        check(self.link.reads)
        with self.link.reads.watching(*OBJECT_PROBLEMS):
            async with asyncio.timeout(_READ_S):
                return await self.link.objects.get(f"{self.link.group}/{name}")

    # --- called by the writer

    def write(self, writes: Sequence[Write]) -> int:
        return self.link.call(self._write_all(writes)).result()

    async def _write_all(self, writes: Sequence[Write]) -> int:
        check(self.link.index_breaker)
        results = await asyncio.gather(*map(self._write, writes), return_exceptions=True)
        for problem in (result for result in results if isinstance(result, BaseException)):
            raise problem  # those that were stored are found to be there when they are tried again
        return sum(result for result in results if isinstance(result, int))

    async def _write(self, write: Write) -> int:
        """Into the index after it was put. Returns 0 if another machine had stored it."""
        link, blob, name = self.link, write.blob, ObjectName.of(write.blob)
        async with self._writes:
            with link.index_breaker.watching(*INDEX_PROBLEMS):
                is_there = await link.index.has(name)
            if not is_there:
                content = await link.loop.run_in_executor(self._seals, self._sealed, write)
                with link.writes.watching(*OBJECT_PROBLEMS):
                    await link.objects.put(f"{link.group}/{name}", content)
            with link.index_breaker.watching(*INDEX_PROBLEMS):
                await link.index.add(name, blob.file_bytes, write.worth, blob.namespace)
        self._leases.wrote(name.tag)
        return 0 if is_there else blob.file_bytes

    def _sealed(self, write: Write) -> bytearray:
        content = bytearray(seal(write.item, self._fingerprint, write.blob.tag))
        content += view_of(write.item.data).data
        return content

    def remove(self, blobs: Sequence[Blob]) -> None:
        self.link.call(self.link.remove([ObjectName.of(blob) for blob in blobs])).result()

    def note(self, uses: Sequence[Use], *, is_idle: bool) -> Sequence[Blob]:
        return self.link.call(self._note(uses, is_idle=is_idle)).result()

    async def _note(self, uses: Sequence[Use], *, is_idle: bool) -> Sequence[Blob]:
        """Blobs that the index no longer knows were collected, and are stored again."""
        if self.link.index_breaker.is_failing:
            return []
        try:
            with self.link.index_breaker.watching(*INDEX_PROBLEMS):
                are_known = await self.link.index.touch([(ObjectName.of(use.blob), use.worth) for use in uses])
                await self._leases.tend(is_idle=is_idle)
        except INDEX_PROBLEMS:
            return []
        return [use.blob for use, is_known in zip(uses, are_known, strict=True) if not is_known]

    def failed(self, problem: Exception) -> None:
        """A part that fails was reported by its breaker."""
        if not isinstance(problem, self.problems):
            logger.error("a blob could not be stored", exc_info=problem)

    def recover(self, written: Collection[str]) -> Collection[str]:  # noqa: ARG002
        check(self.link.index_breaker)
        return ()

    def close(self) -> None:
        self._seals.shutdown(wait=False, cancel_futures=True)


def open_store(
    link: Link,
    prober: Prober,
    fingerprint: str,
    arena: Arena,
    kind: MemoryKind,
    *,
    queue_bytes: int,
    window_tokens: int = 0,
    lease_margin_ms: float = LEASE_MARGIN_MS,
) -> MediumBlobStore[ObjectMedium]:
    """The blobs of one fingerprint in a store that machines share.

    Writing never gives way to the engine, since the next turn of a conversation may go to another machine.
    """
    medium = ObjectMedium(link, prober, fingerprint, kind, window_tokens, lease_margin_ms)
    return MediumBlobStore(
        Origin.STORE,
        medium,
        arena,
        costs=replace(STORE_COSTS),
        num_readers=_NUM_READERS,
        queue_bytes=queue_bytes,
        batch_bytes=_BATCH_BYTES,
        retry_s=_RETRY_S,
        sharing=medium,
    )
