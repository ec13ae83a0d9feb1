"""Snapshots of a sliding window share the pages of their window: in a budget, and when they come back from disk."""

import numpy as np
import pytest

from leftoff.cache.blob_tier import TierSettings
from leftoff.cache.cache import Cache
from leftoff.cache.costs import Costs, TierCosts
from leftoff.cache.placement import Placement
from leftoff.engine.memory.base import MemoryKind, WindowPage
from leftoff.types import Prompt
from tests.cache.chain import SNAPSHOT_BYTES, WINDOW_BYTES_PER_TOKEN, WINDOW_TOKENS, ChainMemory
from tests.cache.driver import Driver
from tests.cache.memory_blob_store import MemoryBlobStore
from tests.cache.test_save import Bench
from tests.cache.trees import UNLIMITED, Clock, run

OWN_BYTES = SNAPSHOT_BYTES - WINDOW_TOKENS * WINDOW_BYTES_PER_TOKEN


def test_a_snapshot_shortly_after_another_takes_few_bytes_more() -> None:
    bench = Bench(MemoryKind.WINDOW)
    bench.read(run((1, 130)), snapshots=(100,))
    assert bench.budget.used_bytes == SNAPSHOT_BYTES
    bench.read(run((1, 130)), snapshots=(100, 105))
    assert bench.budget.used_bytes == SNAPSHOT_BYTES + OWN_BYTES + 5 * WINDOW_BYTES_PER_TOKEN
    bench.budget.check_integrity([bench.tree])


def test_one_further_away_than_the_window_shares_nothing() -> None:
    bench = Bench(MemoryKind.WINDOW)
    bench.read(run((1, 200)), snapshots=(100, 100 + WINDOW_TOKENS))
    assert bench.budget.used_bytes == 2 * SNAPSHOT_BYTES


@pytest.mark.parametrize("first_to_go", [0, 1])
def test_what_two_points_share_goes_with_the_second_of_them(first_to_go: int) -> None:
    bench = Bench(MemoryKind.WINDOW)
    tokens = run((1, 130))
    bench.read(tokens, snapshots=(100, 105))
    points = list(bench.tree.match(tokens).points())
    bench.budget.drop(points.pop(first_to_go))
    bench.budget.check_integrity([bench.tree])
    (left,) = points
    assert bench.budget.used_bytes == left.total_bytes, "all pages of its window are still there"
    bench.budget.drop(left)
    assert bench.budget.used_bytes == 0


def talked(store: MemoryBlobStore) -> Driver:
    """A cache that has read a prompt, with snapshots close to each other, or finds what such a one has left on disk."""
    memory = ChainMemory(MemoryKind.WINDOW)
    disk = TierSettings(store, UNLIMITED)
    store.costs = TierCosts(1e9, 1e-6)
    costs = Costs(prefill_tokens_per_ms=0.001)
    placement = Placement(smallest_gap=8, chunk_tokens=8, slack=0)
    cache = Cache(
        memory,
        num_slots=1,
        budget_bytes=UNLIMITED,
        tiers=[disk],
        costs=costs,
        placement=placement,
        clock=Clock(),
        page_tokens=32,
    )
    return Driver(cache, memory)


TOKENS = run((1, 150))


@pytest.fixture
def store() -> MemoryBlobStore:
    store = MemoryBlobStore()
    driver = talked(store)
    driver.request(Prompt(TOKENS))
    driver.cache.save_idle()
    return store


def test_they_are_stored_once_and_complete_all_snapshots_after_a_restart(store: MemoryBlobStore) -> None:
    pages = [blob.item for blob in store.stored.values() if isinstance(blob.item, WindowPage)]
    assert len({(page.start, page.end) for page in pages}) == len(pages)
    again = talked(MemoryBlobStore(stored=dict(store.stored)))
    longer = np.concatenate([TOKENS, run((2, 9))])
    assert again.request(Prompt(longer)).report.reused == TOKENS.size


def test_a_lost_page_takes_only_the_snapshots_that_need_it(store: MemoryBlobStore) -> None:
    pages = {name: blob.item for name, blob in store.stored.items() if isinstance(blob.item, WindowPage)}
    last = max(pages, key=lambda name: pages[name].end)
    kept = {name: blob for name, blob in store.stored.items() if name != last}
    left = MemoryBlobStore(stored=kept)
    reused = talked(left).request(Prompt(np.concatenate([TOKENS, run((2, 9))]))).report.reused
    assert 0 < reused < TOKENS.size, "an earlier one, whose window is whole"
