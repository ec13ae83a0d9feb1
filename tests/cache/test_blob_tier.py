"""The tier on disk: what a restart finds, what a small RAM budget leans on, and what is lost without harm."""

from collections import Counter

import numpy as np
import pytest

from leftoff.cache.blob_tier import TierSettings
from leftoff.cache.cache import Cache
from leftoff.cache.placement import Placement
from leftoff.engine.memory.base import MemoryKind, Page
from leftoff.types import MessageSpan, Prompt, Tokens
from tests.cache.chain import BYTES_PER_TOKEN, ChainMemory
from tests.cache.driver import Driver
from tests.cache.memory_blob_store import OVERHEAD_BYTES, MemoryBlobStore
from tests.cache.trees import UNLIMITED, Clock

PAGE_TOKENS = 32


def opened(
    kind: MemoryKind, store: MemoryBlobStore, *, ram: int = UNLIMITED, disk: int = UNLIMITED, slots: int = 1
) -> Driver:
    memory = ChainMemory(kind, 1 if kind is MemoryKind.OPAQUE else slots)
    cache = Cache(
        memory,
        num_slots=slots,
        budget_bytes=ram,
        tiers=[TierSettings(store, disk)],
        placement=Placement(smallest_gap=40, slack=4),
        clock=Clock(),
        page_tokens=PAGE_TOKENS,
        seen_tokens=3000,
    )
    return Driver(cache, memory, chunk=20)


def words(start: int, end: int) -> Tokens:
    return np.arange(start, end, dtype=np.int32)


def chat(tokens: Tokens, header: int) -> Prompt:
    return Prompt(tokens, (MessageSpan("system", 0, header), MessageSpan("user", header, int(tokens.size))))


@pytest.mark.parametrize("kind", list(MemoryKind))
def test_a_restart_goes_on_where_the_conversation_stood(kind: MemoryKind) -> None:
    store = MemoryBlobStore()
    first = opened(kind, store)
    prompt, reply = chat(words(0, 150), 40), words(1000, 1030)
    first.request(prompt, reply)
    first.cache.close(1.0)
    second = opened(kind, store)
    told = np.concatenate([prompt.tokens, reply])
    turn = second.request(chat(np.concatenate([told, words(2000, 2010)]), 40))
    assert turn.report.reused == told.size
    assert turn.report.source == "disk"
    second.cache.check_integrity()


@pytest.mark.parametrize("kind", [kind for kind in MemoryKind if kind.has_pages])
def test_what_a_sequence_lost_in_place_is_on_disk_once_the_engine_has_rested(kind: MemoryKind) -> None:
    store = MemoryBlobStore()
    first = opened(kind, store)
    first.memory.group_bytes = 1 << 20  # pages are saved once nothing runs
    prompt, reply, other = words(0, 150), words(1000, 1030), words(2000, 2010)
    seqs = {first.request(Prompt(prompt), reply).seq, first.request(Prompt(np.concatenate([prompt, other]))).seq}
    assert len(seqs) == 1
    first.cache.save_idle()
    second = opened(kind, store)  # without a word from the first
    for end in (reply, other):
        told = np.concatenate([prompt, end])
        assert second.request(Prompt(np.concatenate([told, words(3000, 3010)]))).report.reused == told.size


@pytest.mark.parametrize("num_alike", [0, 50])
@pytest.mark.parametrize("kind", list(MemoryKind))
def test_what_left_ram_comes_back_from_disk(kind: MemoryKind, num_alike: int) -> None:
    store = MemoryBlobStore()
    driver = opened(kind, store, ram=4_000)
    ends = [words(1000 * index + num_alike, 1000 * index + 100) for index in range(1, 7)]
    talks = [chat(np.concatenate([words(0, num_alike), end]), 40) for end in ends]
    for talk in talks:
        driver.request(talk, words(1, 9))
    for talk in talks[:-1]:
        longer = chat(np.concatenate([talk.tokens, words(1, 9), words(50, 60)]), 40)
        assert driver.request(longer).report.reused == talk.length + 8
    assert driver.cache.ram.budget.used_bytes <= 4_000


def test_a_page_is_written_once() -> None:
    store = MemoryBlobStore()
    driver = opened(MemoryKind.HYBRID, store)
    header = words(0, 96)
    for index in range(5):
        driver.request(chat(np.concatenate([header, words(1000 * index + 1000, 1000 * index + 1020)]), 96))
        driver.cache.save_idle()
    pages = [blob.item for blob in store.stored.values() if isinstance(blob.item, Page)]
    assert sum(page.end <= 96 for page in pages) == 96 // PAGE_TOKENS


def test_a_smaller_budget_after_a_restart_holds_at_once() -> None:
    store = MemoryBlobStore()
    first = opened(MemoryKind.HYBRID, store)
    for index in range(4):
        first.request(chat(words(1000 * index, 1000 * index + 100), 40))
    first.cache.close(1.0)
    assert store.used_bytes > 5_000
    opened(MemoryKind.HYBRID, store, disk=5_000).cache.check_integrity()
    assert store.used_bytes <= 5_000


def test_a_full_disk_costs_nothing_but_itself() -> None:
    store = MemoryBlobStore(is_full=True)
    driver = opened(MemoryKind.HYBRID, store)
    driver.request(chat(words(0, 100), 40), words(200, 210))
    driver.cache.save_idle()
    assert store.used_bytes == 0
    assert driver.cache.disk is not None
    assert driver.cache.disk.budget.used_bytes == 0
    assert driver.request(chat(words(0, 100), 40)).report.computed == 0


def test_writing_waits_while_requests_run() -> None:
    class Told(MemoryBlobStore):
        def hold_back(self, *, is_busy: bool) -> None:
            told.append(is_busy)

    told: list[bool] = []
    driver = opened(MemoryKind.ATTENTION, Told())
    turn = driver.begin(chat(words(0, 100), 40))
    assert turn is not None
    assert told[-1:] == [True]
    driver.read(turn)
    driver.cache.finish(turn)
    driver.cache.save_idle()
    assert told[-1:] == [False]


def test_a_disk_that_is_too_small_for_a_conversation_is_filled_to_the_last_byte() -> None:
    page_bytes = PAGE_TOKENS * BYTES_PER_TOKEN + OVERHEAD_BYTES
    store = MemoryBlobStore()
    first = opened(MemoryKind.ATTENTION, store, disk=3 * page_bytes)
    first.request(chat(words(0, 150), 40))
    first.cache.close(1.0)
    assert store.used_bytes == 3 * page_bytes
    second = opened(MemoryKind.ATTENTION, store, disk=3 * page_bytes)
    assert second.request(chat(words(0, 150), 40)).report.reused == 3 * PAGE_TOKENS


@pytest.mark.parametrize("kind", list(MemoryKind))
@pytest.mark.parametrize("seed", range(3))
def test_random_traffic_with_restarts_and_losses(kind: MemoryKind, seed: int) -> None:
    """Every state is exact, both budgets hold to the byte, and the disk is of use."""
    rng = np.random.default_rng(seed)
    store, sources = MemoryBlobStore(), Counter[str]()
    ram, disk = [(0, 30_000), (900, 9_000), (6_000, 4_000)][seed]
    driver = opened(kind, store, ram=ram, disk=disk)
    known = [words(0, 60)]
    for _ in range(100):
        known_tokens = known[rng.integers(max(0, len(known) - 6), len(known))]
        cut = known_tokens.size - int(rng.choice([0, 0, 0, 7, 40]))
        tokens = np.concatenate([known_tokens[:cut], rng.integers(0, 5, rng.integers(1, 40), np.int32)])[:220]
        turn = driver.request(chat(tokens.astype(np.int32), 30), rng.integers(0, 5, 8, np.int32))
        sources[turn.report.source] += 1
        known.append(np.array(turn.sequence.tokens) if tokens.size < 200 else words(0, 40))
        driver.cache.save_idle()
        match rng.integers(0, 12):
            case 0:
                store.lose(int(rng.integers(99)))
            case 1:
                store.break_down(int(rng.integers(99)))
            case 2 | 3 | 4:
                driver.cache.close(1.0)
                driver = opened(kind, store, ram=ram, disk=disk)
            case 5:
                store.is_full = not store.is_full
        driver.cache.check_integrity()
        assert driver.cache.disk is not None
        assert store.used_bytes <= driver.cache.disk.budget.used_bytes <= disk
        assert store.most_bytes <= disk
    assert sources["disk"] > 5, sources
