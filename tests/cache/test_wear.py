"""What cannot stay on disk is not written: at most 1.5 times the largest number of bytes kept, whoever takes turns."""

from itertools import count

import numpy as np
import pytest

from leftoff.cache.blob_tier import TierSettings
from leftoff.cache.cache import Cache
from leftoff.cache.placement import Placement
from leftoff.cache.wear import DAY_S, RecentBytes, Wear
from leftoff.engine.memory.base import MemoryKind
from tests.cache.chain import ChainMemory
from tests.cache.driver import Driver
from tests.cache.memory_blob_store import MemoryBlobStore
from tests.cache.test_blob_tier import PAGE_TOKENS, chat, words
from tests.cache.trees import UNLIMITED

PAGED = [MemoryKind.ATTENTION, MemoryKind.HYBRID, MemoryKind.WINDOW]
HEADER, NUM_CHATS, NUM_TURNS, TURN_TOKENS = 32, 4, 12, 60
STEP_S = 0.01  # of the clock, at every look


def opened(kind: MemoryKind, store: MemoryBlobStore, *, ram: int, disk: int) -> Driver:
    memory, looks = ChainMemory(kind, 1), count()
    cache = Cache(
        memory,
        num_slots=1,
        budget_bytes=ram,
        tiers=[TierSettings(store, disk)],
        placement=Placement(smallest_gap=40, slack=4),
        clock=lambda: STEP_S * next(looks),
        page_tokens=PAGE_TOKENS,
    )
    return Driver(cache, memory, chunk=64)


def take_turns(driver: Driver) -> list[np.ndarray[tuple[int], np.dtype[np.int32]]]:
    """Four conversations, each of which goes on a dozen times."""
    told = [words(1000 * number, 1000 * number + HEADER) for number in range(NUM_CHATS)]
    for turn in range(NUM_TURNS):
        for number, tokens in enumerate(told):
            start = 10_000 * (number + 1) + 100 * turn
            told[number] = np.concatenate([tokens, words(start, start + TURN_TOKENS)])
            driver.request(chat(told[number], HEADER))
            driver.cache.save_idle()
    return told


@pytest.mark.parametrize("kind", PAGED)
@pytest.mark.parametrize("ram", [UNLIMITED, 10_000])
def test_conversations_in_turn_on_a_disk_for_three_of_them(kind: MemoryKind, ram: int) -> None:
    one_bytes = ChainMemory(kind).page_bytes(HEADER + NUM_TURNS * TURN_TOKENS) + 2 * ChainMemory(kind).snapshot_bytes(1)
    store, disk = MemoryBlobStore(), 3 * one_bytes
    driver = opened(kind, store, ram=ram, disk=disk)
    told = take_turns(driver)
    driver.cache.check_integrity()
    assert store.most_bytes > 0.9 * disk
    assert store.written_bytes <= 1.5 * store.most_bytes
    after = opened(kind, store, ram=UNLIMITED, disk=disk)
    after.cache.costs.prefill_tokens_per_ms = 1e-3
    found = sum(after.request(chat(tokens, HEADER)).report.reused for tokens in told)
    assert found > 0.5 * sum(tokens.size for tokens in told), "what was written is of use"


def test_what_was_evicted_is_not_copied_again_because_ram_has_it() -> None:
    store = MemoryBlobStore()
    driver = opened(MemoryKind.ATTENTION, store, ram=UNLIMITED, disk=12_000)
    take_turns(driver)
    written_bytes = store.written_bytes
    for _ in range(20):
        store.break_down(0)  # so that the tier has to catch up
        driver.cache.save_idle()
    assert store.written_bytes <= written_bytes + 20 * 16 * PAGE_TOKENS + 20 * store.overhead_bytes


def test_a_newcomer_replaces_what_rests() -> None:
    store = MemoryBlobStore()
    now = [0.0]
    memory = ChainMemory(MemoryKind.ATTENTION, 1)
    cache = Cache(
        memory,
        num_slots=1,
        budget_bytes=UNLIMITED,
        tiers=[TierSettings(store, 8_000)],
        clock=lambda: now[0],
        page_tokens=PAGE_TOKENS,
    )
    driver = Driver(cache, memory)
    for number in range(6):
        driver.request(chat(words(1000 * number, 1000 * number + 160), HEADER))
        cache.save_idle()
        now[0] += 3600.0 * (number + 1)
    assert cache.disk is not None
    latest = cache.disk.match("", words(5000, 5160))
    assert latest.num_covered() == 160


def test_a_day_that_is_written_full_is_left_alone() -> None:
    store = MemoryBlobStore(left_bytes=1000)
    driver = opened(MemoryKind.HYBRID, store, ram=UNLIMITED, disk=UNLIMITED)
    driver.request(chat(words(0, 200), HEADER))
    driver.cache.save_idle()
    assert store.written_bytes <= 1000
    driver.cache.check_integrity()


def test_recent_bytes_are_forgotten_after_their_time() -> None:
    recent = RecentBytes(DAY_S)
    recent.add(5, 0.0)
    recent.add(7, DAY_S / 2)
    assert recent.total(DAY_S) == 12
    assert recent.total(1.2 * DAY_S) == 7
    assert RecentBytes.parse(recent.text, DAY_S).total(1.2 * DAY_S) == 7


def test_recent_bytes_from_when_the_clock_was_wrong_are_forgotten_too() -> None:
    """Else a day that the clock was years ahead would be full until then."""
    recent = RecentBytes(DAY_S)
    recent.add(5, 1000 * DAY_S)
    recent.add(7, DAY_S)
    assert recent.total(DAY_S) == 12
    assert recent.total(1.5 * DAY_S) == 12
    assert recent.total(2.5 * DAY_S) == 0


@pytest.mark.parametrize("text", ["", "[]", "7", '{"a": 1}', '{"1": Infinity}', "{"])
def test_a_text_that_says_nothing_counts_nothing(text: str) -> None:
    assert RecentBytes.parse(text, DAY_S).total(0.0) == 0


def test_the_more_is_evicted_the_longer_a_point_must_have_rested() -> None:
    wear = Wear()
    assert (wear.left_bytes(100, 0.0), wear.patience_s(100, 0.0)) == (50, 0.0)
    wear.evicted(25, 0.0)
    half = wear.patience_s(100, 0.0)
    wear.evicted(25, 0.0)
    assert (wear.left_bytes(100, 0.0), wear.patience_s(100, 0.0)) == (0, 2 * half)
    assert wear.left_bytes(100, DAY_S) == 50
