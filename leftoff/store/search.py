"""Looks a prompt up in the index, and lets one machine of the fleet read a header that is new to all of them.

A machine that finds no header in the store takes a lease on reading it. The others wait, and search again until it is
stored. They stop waiting when the lease expires: its holder is gone, or stores nothing more.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from leftoff.blobs.blob import Blob
from leftoff.blobs.path_hash import HashedPath
from leftoff.cache.blob_store import Wanted
from leftoff.engine.memory.base import MemoryKind
from leftoff.engine.seal import PAGE, SNAPSHOT
from leftoff.store.link import Link

SEARCH_S = 1.5  # for an answer of the index; one that is slower is no answer
_FIRST_LOOK_S, _LOOK_S = 0.01, 0.1  # while another machine reads the header: at first, and at most
LEASE_MARGIN_MS = 5000.0


@dataclass(frozen=True)
class FoundBlobs:
    """The blobs of a path, and how far one could resume with them."""

    blobs: Sequence[Blob]
    resume: int


class Searcher:
    """Runs on the loop of the link. May raise the index's problems."""

    def __init__(
        self, link: Link, kind: MemoryKind, window_tokens: int, lease_margin_ms: float = LEASE_MARGIN_MS
    ) -> None:
        self._link = link
        self._kind = kind
        self._window_tokens = window_tokens
        self._lease_margin_ms = lease_margin_ms

    async def blobs(self, path: HashedPath, known: int) -> FoundBlobs:
        async with asyncio.timeout(SEARCH_S):
            blobs = await self._link.index.search(path, max(0, known - self._window_tokens))
        return FoundBlobs(blobs, resumable(blobs, known, self._kind))

    async def header(self, path: HashedPath, wanted: Wanted, held: Callable[[bytes, float], None]) -> FoundBlobs:
        """What is stored, once the header is, or once this machine has the lease to read it, which `held` gets."""
        found = await self.blobs(path, wanted.known)
        end = wanted.header_end
        if end is None or found.resume >= end:
            return found
        key = self._link.index.keys.reading(path.tag(end))
        token_ms = wanted.read_ms / max(1, int(path.tokens.size) - wanted.known)
        ttl_ms = 2 * token_ms * (end - found.resume) + self._lease_margin_ms
        deadline, look_s = time.monotonic() + ttl_ms / 1000, _FIRST_LOOK_S
        while not await self._link.index.take_lease(key, ttl_ms):
            await asyncio.sleep(look_s)
            look_s = min(_LOOK_S, 2 * look_s)
            before, found = found.resume, await self.blobs(path, wanted.known)
            if found.resume > before:
                deadline = time.monotonic() + (2 * token_ms * (end - found.resume) + self._lease_margin_ms) / 1000
            if found.resume >= end or time.monotonic() > deadline:
                return found
        held(key, ttl_ms)
        return await self.blobs(path, wanted.known)  # it may have been stored, and the lease released, in between


def resumable(blobs: Sequence[Blob], known: int, kind: MemoryKind) -> int:
    """How far one can resume with these blobs, if the first `known` tokens are here."""
    covered = known
    for start, end in sorted((blob.start, blob.end) for blob in blobs if blob.kind == PAGE):
        if start <= covered:
            covered = max(covered, end)
    if not kind.has_snapshots:
        return covered
    ends = (blob.end for blob in blobs if blob.kind == SNAPSHOT and (blob.end <= covered or not kind.has_pages))
    return max((known, *ends))
