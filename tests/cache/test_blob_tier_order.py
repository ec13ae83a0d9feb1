"""A slow disk gets first what lets most prompts resume: shared beginnings, then ends, whole paths, the latest first."""

import numpy as np
import pytest

from leftoff.cache.blob_store import Worth
from leftoff.cache.blob_tier import TierSettings
from leftoff.cache.cache import Cache
from leftoff.cache.costs import Costs
from leftoff.cache.placement import Placement
from leftoff.engine.memory.base import MemoryKind, Snapshot
from leftoff.engine.seal import span_of
from leftoff.types import Prompt, Tokens
from tests.cache.chain import SNAPSHOT_BYTES, ChainMemory
from tests.cache.driver import Driver
from tests.cache.memory_blob_store import OVERHEAD_BYTES, MemoryBlobStore
from tests.cache.slow_blob_store import SlowBlobStore
from tests.cache.test_blob_tier import chat, words
from tests.cache.trees import UNLIMITED, Clock

PAGED = [MemoryKind.ATTENTION, MemoryKind.HYBRID, MemoryKind.WINDOW]
PAGE_TOKENS = 32
PAGE_BYTES = 16 * PAGE_TOKENS + OVERHEAD_BYTES
HEADER, NUM_CHATS, NUM_PROMPT, NUM_REPLY = 128, 4, 320, 10


def opened(kind: MemoryKind, store: MemoryBlobStore, *, tokens_per_ms: float = 0.5, ram: int = UNLIMITED) -> Driver:
    memory = ChainMemory(kind, 4)
    cache = Cache(
        memory,
        num_slots=4,
        budget_bytes=ram,
        tiers=[TierSettings(store, UNLIMITED)],
        placement=Placement(smallest_gap=1000, slack=4),
        costs=Costs(prefill_tokens_per_ms=tokens_per_ms),
        clock=Clock(),
        page_tokens=PAGE_TOKENS,
    )
    return Driver(cache, memory, chunk=64)


def prompts() -> list[Tokens]:
    header = words(0, HEADER)
    starts = range(1000, 1000 + 1000 * NUM_CHATS, 1000)
    return [np.concatenate([header, words(start, start + NUM_PROMPT - HEADER)]) for start in starts]


def told(prompt: Tokens) -> Tokens:
    return np.concatenate([prompt, words(1, 1 + NUM_REPLY)])


def talk(driver: Driver) -> None:
    for prompt in prompts():
        driver.request(chat(prompt, HEADER), words(1, 1 + NUM_REPLY))
        driver.cache.save_idle()


def resumed(kind: MemoryKind, store: MemoryBlobStore) -> list[int]:
    """How many tokens each conversation finds after a kill, when it goes on."""
    lengths = []
    for prompt in prompts():
        driver = opened(kind, MemoryBlobStore(stored=dict(store.stored)))
        longer = np.concatenate([told(prompt), words(9000, 9005)])
        lengths.append(driver.request(chat(longer, HEADER)).report.reused)
    return lengths


@pytest.mark.parametrize("kind", PAGED)
def test_what_conversations_share_is_written_first_then_the_latest_of_them(kind: MemoryKind) -> None:
    whole = NUM_PROMPT + NUM_REPLY
    store = SlowBlobStore()
    talk(opened(kind, store))
    num_snapshots = 2 if kind.has_snapshots else 0  # the end of the prompt, and that of the reply
    num_blobs = 5 if kind is MemoryKind.WINDOW else 1  # a snapshot and its window pages
    snapshot_bytes = ChainMemory(kind).snapshot_bytes(whole) + num_blobs * OVERHEAD_BYTES
    header_bytes = HEADER // PAGE_TOKENS * PAGE_BYTES + (snapshot_bytes if kind.has_snapshots else 0)
    one_bytes = (whole - HEADER) // PAGE_TOKENS * PAGE_BYTES + PAGE_BYTES + num_snapshots * snapshot_bytes
    assert resumed(kind, store.after_kill()) == [0, 0, 0, 0]
    store.write(header_bytes)
    assert resumed(kind, store.after_kill()) == [HEADER] * 4
    store.write(one_bytes)
    assert resumed(kind, store.after_kill())[-1] == whole, "the latest"
    store.write(one_bytes)
    assert resumed(kind, store.after_kill())[-2:] == [whole, whole]
    store.write(UNLIMITED)
    assert resumed(kind, store.after_kill()) == [whole] * 4


def test_a_conversation_that_has_gone_on_is_not_written_twice() -> None:
    """On a machine that reads fast, the end of an earlier turn is not worth its bytes, unless it is written already."""
    store = SlowBlobStore()
    driver = opened(MemoryKind.HYBRID, store, tokens_per_ms=100.0)
    tokens = told(prompts()[0])
    for turn in range(5):
        driver.request(chat(tokens, HEADER), words(turn, turn + 4))
        driver.cache.save_idle()
        tokens = np.concatenate([tokens, words(turn, turn + 4), words(500 + turn, 510 + turn)])
    snapshots = [blob.item for blob in store.stored.values() if isinstance(blob.item, Snapshot)]
    assert {each.position for each in snapshots} == {tokens.size - 14, tokens.size - 10}, "of the last prompt and reply"


def test_a_queue_that_is_full_gives_up_the_oldest_and_gets_it_later_from_ram() -> None:
    one = (NUM_PROMPT // PAGE_TOKENS + 2) * PAGE_BYTES + 3 * (SNAPSHOT_BYTES + OVERHEAD_BYTES)
    store = SlowBlobStore(queue_bytes=2 * one)
    driver = opened(MemoryKind.HYBRID, store)
    talk(driver)
    store.write(UNLIMITED)
    whole = NUM_PROMPT + NUM_REPLY
    found = resumed(MemoryKind.HYBRID, store.after_kill())
    assert found[-1] == whole
    assert min(found) < whole, "not all of them could wait"
    for _ in range(NUM_CHATS):
        driver.cache.save_idle()
        store.write(UNLIMITED)
    assert resumed(MemoryKind.HYBRID, store.after_kill()) == [whole] * 4
    driver.cache.check_integrity()


@pytest.mark.parametrize("kind", [MemoryKind.HYBRID, MemoryKind.RECURRENT])
@pytest.mark.parametrize(("bytes_per_ms", "source"), [(0.5, "nothing"), (10_000.0, "disk")])
def test_a_disk_that_is_slower_than_reading_is_not_waited_for(
    kind: MemoryKind, bytes_per_ms: float, source: str
) -> None:
    """By the rate that the store has measured, before anything was fetched."""
    store = SlowBlobStore()
    talk(opened(kind, store))
    store.write(UNLIMITED)
    left = store.after_kill()
    left.costs.bytes_per_ms = bytes_per_ms
    driver = opened(kind, left)
    turn = driver.request(Prompt(np.concatenate([told(prompts()[0]), words(1, 9)])))
    assert turn.report.source == source


def test_a_beginning_that_another_process_stored_is_known_to_be_shared_once_a_second_prompt_leaves_it() -> None:
    store = MemoryBlobStore()
    worths = []
    for prompt in prompts()[:2]:
        driver = opened(MemoryKind.HYBRID, store)
        driver.request(chat(prompt, HEADER), words(1, 1 + NUM_REPLY))
        driver.cache.save_idle()
        (header,) = (name for name, blob in store.stored.items() if span_of(blob.item) == (HEADER, HEADER))
        worths.append(store.ranks[header].worth)
        driver.cache.close(1.0)
    assert worths[0] < worths[1] == Worth.SHARED
