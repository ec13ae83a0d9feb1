"""What the store has lost is forgotten at once, however much it is."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pytest

from leftoff.cache.blob_store import Record, StoredPath
from leftoff.cache.blob_tier import BlobTier, TierSettings
from leftoff.cache.costs import Costs
from leftoff.cache.policy import ValuePerByte
from leftoff.cache.tiers import PAGE_TOKENS
from leftoff.engine.memory.base import MemoryKind, Page, Snapshot
from tests.cache.chain import ChainMemory
from tests.cache.memory_blob_store import MemoryBlobStore
from tests.cache.trees import UNLIMITED

NUM_CHATS = 1000
NUM_PAGES = 10
HEADER_TOKENS = 1000  # ends within a page
MAX_TIMES_AS_LONG = 8.0  # for four times as many: in proportion it is 4, each by each it would be 16


@dataclass(eq=False)
class Library(MemoryBlobStore):
    """What an earlier process left of many conversations that begin alike: all of it can be lost at once."""

    num_chats: int = NUM_CHATS

    def stored_paths(self) -> Iterable[StoredPath]:
        rng = np.random.default_rng(0)
        header = rng.integers(0, 1000, HEADER_TOKENS).astype(np.int32)
        for chat in range(self.num_chats):
            rest = rng.integers(0, 1000, NUM_PAGES * PAGE_TOKENS - HEADER_TOKENS).astype(np.int32)
            starts = range(0, NUM_PAGES * PAGE_TOKENS, PAGE_TOKENS)
            pages = [Page(start, start + PAGE_TOKENS, Record(f"{chat} {start}", 1000, self)) for start in starts]
            point = Snapshot(NUM_PAGES * PAGE_TOKENS, Record(f"{chat}", 1000, self))
            yield StoredPath("", np.concatenate([header, rest]), [*pages, point], [0.0] * (NUM_PAGES + 1))

    def lose_all(self, records: list[Record]) -> None:
        self._broken += records


def tier_of(store: MemoryBlobStore) -> BlobTier:
    memory = ChainMemory(MemoryKind.HYBRID)
    return BlobTier(TierSettings(store, UNLIMITED, ValuePerByte()), time.monotonic, memory, Costs(), PAGE_TOKENS)


def records_in(tier: BlobTier) -> list[Record]:
    nodes = [node for tree in tier.trees.values() for node in tree.nodes()]
    items = [point.snapshot for node in nodes for point in node.points]
    pages = {stretch.stored.page for node in nodes for stretch in node.stretches}
    return [item.data for item in (*items, *pages) if item is not None and isinstance(item.data, Record)]


def seconds_to_forget(num_chats: int) -> float:
    """Of computing, however busy the machine is."""
    store = Library(num_chats=num_chats)
    tier = tier_of(store)
    store.lose_all(records_in(tier))
    began = time.thread_time()
    tier.forget_lost()
    return time.thread_time() - began


def test_the_time_it_takes_is_in_proportion_to_what_is_lost() -> None:
    few, many = (min(seconds_to_forget(num_chats) for _ in range(3)) for num_chats in (NUM_CHATS // 4, NUM_CHATS))
    assert many < MAX_TIMES_AS_LONG * few


@pytest.mark.parametrize("share", [1, 2, 10])
def test_thousands_are_lost_at_once(share: int) -> None:
    store = Library()
    tier = tier_of(store)
    lost = records_in(tier)[::share]
    assert len(lost) > NUM_CHATS * 7 // share
    store.lose_all(lost)
    tier.forget_lost()
    tier.check_integrity()
    left = records_in(tier)
    assert {*left}.isdisjoint(lost)
    assert tier.budget.used_bytes == sum(record.nbytes for record in left)
    assert bool(left) == (share > 1)
