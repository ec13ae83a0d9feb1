"""The simulated fleet: nothing is found in it, a seed replays, and each defect that was there once is found again."""

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from lab.box.play import HEADER_WORDS, Play, play
from lab.box.server import READ_TOKENS_PER_MS
from leftoff.blobs.medium import PathBlobs
from leftoff.blobs.path_hash import HashedPath
from leftoff.cache.blob_store import Wanted
from leftoff.cluster import index
from leftoff.cluster.member import FleetMember
from leftoff.store.medium import ObjectMedium
from leftoff.store.replies import IndexReplies

NUM_SEEDS = 32


@pytest.mark.parametrize("part", range(4))
def test_nothing_is_found(part: int) -> None:
    found = {seed: run.found for seed in range(part, NUM_SEEDS, 4) if (run := play(seed)).found}
    assert found == {}, "python -m lab.box --seed N replays it"


def test_a_seed_replays() -> None:
    assert play(4).world.trace == play(4).world.trace


@contextmanager
def replicas_that_aged_are_dropped() -> Iterator[None]:
    """Silence counted while the index was away."""
    with patch.object(index, "_GAP_S", math.inf):
        yield


@contextmanager
def a_lost_secret_stays_lost() -> Iterator[None]:
    async def own(_: FleetMember, mine: bytes) -> bytes:
        return mine

    async def keep(_: FleetMember, secret: bytes) -> None: ...

    with patch.object(FleetMember, "_index_secret", own), patch.object(FleetMember, "_keep_secret", keep):
        yield


@contextmanager
def replies_are_gathered() -> Iterator[None]:
    """For 0.2 s, before they were told to other servers."""
    with patch.object(IndexReplies, "gather_s", 0.2):
        yield


@contextmanager
def headers_are_read_under_a_lease() -> Iterator[None]:
    """Others waited, twice as long as reading takes and five seconds, if no blob ended just where the header does."""
    search = ObjectMedium._search

    async def under_lease(self: ObjectMedium, wanted: Wanted) -> PathBlobs | None:
        found = await search(self, wanted)
        key = self.link.index.keys.lease(HashedPath(wanted.namespace, wanted.tokens).tag(HEADER_WORDS + 1).hex())
        patience_s = 2 * HEADER_WORDS / READ_TOKENS_PER_MS / 1000 + 5
        deadline = asyncio.get_running_loop().time() + patience_s
        while found is None and not await self.link.index.take_lease(key, 1000 * patience_s):
            if asyncio.get_running_loop().time() > deadline:
                return await search(self, wanted)
            await asyncio.sleep(0.1)
        return found

    with patch.object(ObjectMedium, "_search", under_lease):
        yield


# What undoes a fix, what is said of it, and from which seed on.
DEFECTS: dict[str, tuple[Callable[[], Any], str, int]] = {
    "a router without replicas": (replicas_that_aged_are_dropped, "which beats", 21),
    "a secret that is lost": (a_lost_secret_stays_lost, "the next server", 21),
    "replies that come late": (replies_are_gathered, "does not know how it was written", 0),
    "a lease that is waited for": (headers_are_read_under_a_lease, "before it was begun", 0),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_that_was_there_is_found(name: str) -> None:
    undone, words, first = DEFECTS[name]
    with undone():
        runs: Iterator[Play] = map(play, range(first, first + NUM_SEEDS))
        assert any(words in text for run in runs for text in run.found)
