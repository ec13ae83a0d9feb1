"""A store that machines share as the medium of a blob store: objects, and an index of them in Redis or Valkey.

    search ──> index ──> blobs        read <── object        write ──> object, then index

An index that is down for a moment, or a store, loses nothing: the writer keeps what waits.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

from leftoff.blobs.blob import Blob, Write
from leftoff.blobs.medium import GoneError, PathBlobs, Use
from leftoff.blobs.path_hash import HashedPath
from leftoff.blobs.store import MediumBlobStore
from leftoff.cache.blob_store import Item, Wanted, Worth
from leftoff.cache.report import Origin
from leftoff.engine.memory.arena import Arena, view_of
from leftoff.engine.seal import seal, unseal
from leftoff.store.fleet_key import FleetKey
from leftoff.store.index import INDEX_PROBLEMS
from leftoff.store.link import PROBLEMS, Link
from leftoff.store.namespaces import clear_namespaces, put_name
from leftoff.store.objects import OBJECT_PROBLEMS, STORE_COSTS, Got, MissingError, ObjectName, Reader
from leftoff.store.prober import Prober

logger = logging.getLogger("leftoff.store")

_NUM_READERS = int(STORE_COSTS.calls_at_once)
_NUM_WRITES = 8  # side by side
_BATCH_BYTES = 64 << 20
_RETRY_S = 1.0
_TELL_S = 60.0  # between two lines of the log that say the same
_READ_S = 10.0  # for one object
_SEARCH_S = 1.5  # for an answer of the index; one that is slower is no answer


class ObjectMedium:
    """Implements `blobs.medium.Medium` and `Sharing` for the blobs of one fingerprint. Made by `open_store`."""

    problems = (*PROBLEMS, CancelledError)
    left_bytes = math.inf

    def __init__(
        self, link: Link, prober: Prober, fingerprint: str, window_tokens: int = 0, key: FleetKey | None = None
    ) -> None:
        self._key = key.key("blobs") if key is not None else None
        self.link = link
        self._prober = prober
        self._fingerprint = fingerprint
        self._window_tokens = window_tokens
        self._writes = asyncio.Semaphore(_NUM_WRITES)
        self._in_doubt: set[ObjectName] = set()  # those whose put has failed, while they are tried again
        self._missing: set[ObjectName] = set()  # those that the store lacked, until the index forgets them
        self._tells_missing_at = 0.0
        self._seals = ThreadPoolExecutor(2, thread_name_prefix="leftoff-store-seal")

    @property
    def bytes_per_ms(self) -> float | None:
        """How fast one object is read alone. Several at once are faster."""
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
        path = HashedPath(wanted.namespace, wanted.tokens)
        try:
            self.link.reads.check()
            with self.link.index_breaker.asking(*INDEX_PROBLEMS):
                async with asyncio.timeout(_SEARCH_S):
                    blobs = await self.link.index.search(path, max(0, wanted.known - self._window_tokens))
        except PROBLEMS:
            return None
        if not blobs:
            return None
        end = max(blob.end for blob in blobs)
        return PathBlobs(wanted.namespace, wanted.tokens[:end].copy(), blobs)

    # --- reading

    def read(self, blob: Blob, arena: Arena) -> Item:
        name = ObjectName.of(blob)
        try:
            data = self.link.call(self._get(name)).result().data
        except MissingError as error:
            self._missing.add(name)
            self._tell_missing(name)
            raise GoneError(f"{name} is not stored any more") from error
        item = unseal(Reader(data), data.nbytes, self._fingerprint, arena, blob.tag, self._key)
        blob.check(item)
        return item

    def _tell_missing(self, name: ObjectName) -> None:
        """Logs a missing object, but only once in a while: an emptied store lacks all that the index names."""
        if (now := self.link.threads.clock()) >= self._tells_missing_at:
            self._tells_missing_at = now + _TELL_S
            logger.warning("the store lacks what the index names, such as %s: it is read again, and stored again", name)

    async def _get(self, name: ObjectName) -> Got:
        with self.link.reads.asking(*OBJECT_PROBLEMS):
            async with asyncio.timeout(_READ_S):
                return await self.link.objects.get(f"{self.link.group}/{name}")

    # --- called by the writer

    def write(self, writes: Sequence[Write]) -> int:
        return self.link.call(self._write_all(writes)).result()

    async def _write_all(self, writes: Sequence[Write]) -> int:
        self.link.index_breaker.check()
        results = await asyncio.gather(*map(self._write, writes), return_exceptions=True)
        for problem in (result for result in results if isinstance(result, BaseException)):
            raise problem  # those that were stored are found to be there when they are tried again
        return sum(result for result in results if isinstance(result, int))

    async def _write(self, write: Write) -> int:
        """Into the index after it was put. Returns 0 if another machine had stored it."""
        link, blob, name = self.link, write.blob, ObjectName.of(write.blob)
        async with self._writes:
            with link.index_breaker.watching(*INDEX_PROBLEMS):
                known = await link.index.find(name, blob.namespace)
            if not known.blob:
                content = await link.loop.run_in_executor(self._seals, self._sealed, write)
                self._in_doubt.add(name)
                with link.writes.watching(*OBJECT_PROBLEMS):
                    if not known.namespace:
                        await put_name(link, blob.namespace)
                    await link.objects.put(f"{link.group}/{name}", content)
            elif name in self._in_doubt:  # it was stored, though the store did not say so
                link.writes.worked()
            self._in_doubt.discard(name)
            await self._add(name, blob.file_bytes, write.worth, blob.namespace)
        return 0 if known.blob else blob.file_bytes

    async def _add(self, name: ObjectName, nbytes: int, worth: Worth, namespace: str) -> None:
        """Into the index. A namespace that it has not known may just have been deleted, and its name with it."""
        with self.link.index_breaker.watching(*INDEX_PROBLEMS):
            known = await self.link.index.add(name, nbytes, worth, namespace)
        if not known.namespace:
            with self.link.writes.watching(*OBJECT_PROBLEMS):
                await put_name(self.link, namespace)

    def _sealed(self, write: Write) -> bytearray:
        content = bytearray(seal(write.item, self._fingerprint, write.blob.tag, self._key))
        content += view_of(write.item.data).data
        return content

    def remove(self, blobs: Sequence[Blob]) -> None:
        self.link.call(self._remove({ObjectName.of(blob): blob for blob in blobs})).result()

    async def _remove(self, blobs: Mapping[ObjectName, Blob]) -> None:
        lost = [name for name in blobs if name in self._missing]
        await self.link.remove([name for name in blobs if name not in self._missing])
        await self.link.index.remove(lost)
        for name in lost:
            await self._name_again(name, blobs[name].namespace)
        self._missing.difference_update(lost)

    async def _name_again(self, name: ObjectName, namespace: str) -> None:
        """Another machine may have stored a blob again since it was found to be lost."""
        with suppress(MissingError):
            nbytes = await self.link.objects.size(f"{self.link.group}/{name}")
            await self._add(name, nbytes, Worth.MIDDLE, namespace)

    def clear(self, is_meant: Callable[[str], bool]) -> None:
        self.link.call(clear_namespaces(self.link, is_meant)).result()

    def note(self, uses: Sequence[Use]) -> Sequence[Blob]:
        return self.link.call(self._note(uses)).result()

    async def _note(self, uses: Sequence[Use]) -> Sequence[Blob]:
        """Blobs that the index no longer knows were collected, and are stored again."""
        try:
            with self.link.index_breaker.asking(*INDEX_PROBLEMS):
                are_known = await self.link.index.touch([(ObjectName.of(use.blob), use.worth) for use in uses])
        except INDEX_PROBLEMS:
            return []
        return [use.blob for use, is_known in zip(uses, are_known, strict=True) if not is_known]

    def failed(self, problem: Exception) -> None:
        """A part that fails was reported by its breaker."""
        if not isinstance(problem, self.problems):
            logger.error("a blob could not be stored", exc_info=problem)

    def recover(self, written: Collection[str]) -> Collection[str]:  # noqa: ARG002
        self.link.index_breaker.check()
        return ()

    def check_room(self) -> None:
        """A bucket has no end."""

    def close(self) -> None:
        self._seals.shutdown(wait=False, cancel_futures=True)


def open_store(
    link: Link,
    prober: Prober,
    fingerprint: str,
    arena: Arena,
    *,
    queue_bytes: int,
    window_tokens: int = 0,
    key: FleetKey | None = None,
) -> MediumBlobStore[ObjectMedium]:
    """The blobs of one fingerprint in a store that machines share.

    Writing never gives way to the engine, since the next turn of a conversation may go to another machine.
    """
    medium = ObjectMedium(link, prober, fingerprint, window_tokens, key)
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
        threads=link.threads,
    )
