"""Caches that share a store: what one machine has read the others resume from, exactly, and need not know before."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leftoff.cache.blob_tier import TierSettings
from leftoff.cache.cache import Cache
from leftoff.cache.costs import Costs, TierCosts
from leftoff.engine.memory.base import MemoryKind
from leftoff.types import MessageSpan, Prompt, Tokens
from tests.cache.chain import ChainMemory
from tests.cache.driver import Driver
from tests.cache.shared_blob_store import SharedStore
from tests.cache.trees import UNLIMITED

KINDS = [MemoryKind.HYBRID, MemoryKind.ATTENTION, MemoryKind.RECURRENT]
SLOW = 0.01  # tokens per ms: whatever is stored is worth a fetch


class Machine(Driver):
    """A cache of its own over the store that all share."""

    def __init__(self, store: SharedStore, kind: MemoryKind, budget_bytes: int = UNLIMITED) -> None:
        memory = ChainMemory(kind, 1, 4096)
        cache = Cache(
            memory,
            num_slots=1,
            budget_bytes=budget_bytes,
            tiers=[TierSettings(store, UNLIMITED)],
            costs=Costs(prefill_tokens_per_ms=SLOW),
            page_tokens=32,
        )
        super().__init__(cache, memory)
        self._store = store

    def ask(self, prompt: Prompt, reply: Tokens | None = None, namespace: str = "") -> int:
        """As a run does: looks the prompt up, and reads what nobody has; returns the tokens that it computed."""
        assert not self.cache.prepare(prompt, namespace).is_waiting
        turn = self.request(prompt, reply, namespace)
        self._store.write()
        self.cache.check_integrity()
        return turn.report.computed


def tokens(seed: int, size: int) -> Tokens:
    return np.random.default_rng(seed).integers(0, 1000, size).astype(np.int32)


def chat(*parts: Tokens) -> Prompt:
    """A header, and a message that it is followed by."""
    spans = [
        MessageSpan("system", 0, parts[0].size),
        MessageSpan("user", parts[0].size, sum(part.size for part in parts)),
    ]
    return Prompt(np.concatenate(parts), tuple(spans))


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_conversations_that_part_within_a_page_both_are_found(kind: MemoryKind) -> None:
    store, header = SharedStore(), np.concatenate([tokens(1, 300), tokens(9, 3)])
    prompts = [chat(tokens(1, 300), np.concatenate([header[300:], tokens(seed, 60)])) for seed in (2, 3)]
    machine = Machine(store, kind)
    for prompt in prompts:
        machine.ask(prompt)
    computed = [Machine(store, kind).ask(chat(header[:300], prompt.tokens[300:], tokens(5, 20))) for prompt in prompts]
    page = 0 if kind.has_snapshots else 32
    assert max(computed) <= 20 + page


@pytest.mark.parametrize("kind", [MemoryKind.HYBRID, MemoryKind.RECURRENT])
def test_where_two_conversations_part_within_a_page_another_machine_resumes(kind: MemoryKind) -> None:
    store, common = SharedStore(), tokens(1, 217)
    machine = Machine(store, kind)
    for seed in (2, 3):
        machine.ask(Prompt(np.concatenate([common, tokens(seed, 90)])))
    assert Machine(store, kind).ask(Prompt(np.concatenate([common, tokens(4, 90)]))) == 90
    again = Prompt(np.concatenate([common, tokens(2, 90), tokens(5, 10)]))
    assert Machine(store, kind).ask(again) == 10, "the first one is found as before"


@pytest.mark.parametrize("kind", KINDS)
def test_a_conversation_moves_at_every_turn(kind: MemoryKind) -> None:
    store = SharedStore()
    machines = [Machine(store, kind) for _ in range(3)]
    so_far, computed = tokens(0, 200), []
    for turn in range(6):
        so_far = np.concatenate([so_far, tokens(100 + turn, 40)])
        reply = tokens(200 + turn, 10)
        computed.append(machines[turn % 3].ask(Prompt(so_far), reply))
        so_far = np.concatenate([so_far, reply])
    assert computed == [240, 40, 40, 40, 40, 40]


@pytest.mark.parametrize("kind", [MemoryKind.HYBRID, MemoryKind.RECURRENT])
def test_a_header_is_read_once_by_all_machines(kind: MemoryKind) -> None:
    store, header = SharedStore(), tokens(1, 300)
    computed = [Machine(store, kind).ask(chat(header, tokens(seed, 20))) for seed in (2, 3, 4)]
    assert computed == [320, 20, 20]


def test_who_has_the_prompt_does_not_ask() -> None:
    store = SharedStore()
    machine = Machine(store, MemoryKind.HYBRID)
    prompt = Prompt(tokens(5, 200))
    machine.ask(prompt, tokens(6, 5))
    machine.ask(prompt)
    assert len(store.searched) == 1
    again = Prompt(np.concatenate([prompt.tokens, tokens(6, 5), tokens(7, 30)]))
    machine.ask(again)
    assert store.searched[-1].known == 205


def test_a_store_that_is_slow_is_not_asked() -> None:
    store = SharedStore(costs=TierCosts(call_ms=1e9))
    Machine(store, MemoryKind.HYBRID).ask(Prompt(tokens(8, 200)))
    assert store.searched == []


def test_namespaces_share_nothing() -> None:
    store, prompt = SharedStore(), Prompt(tokens(9, 200))
    Machine(store, MemoryKind.HYBRID).ask(prompt, namespace="one/")
    assert Machine(store, MemoryKind.HYBRID).ask(prompt, namespace="two/") == 200
    assert Machine(store, MemoryKind.HYBRID).ask(Prompt(np.append(prompt.tokens, 1)), namespace="one/") == 1


def test_what_one_forgets_the_store_keeps_unless_it_was_a_wish() -> None:
    store, prompt = SharedStore(), Prompt(tokens(10, 200))
    one = Machine(store, MemoryKind.HYBRID)
    one.ask(prompt)
    (tier,) = one.cache.tiers.lower
    assert tier.is_shared
    tier.budget.make_room(UNLIMITED)
    assert tier.budget.num_points == 0
    assert store.stored
    one.cache.clear(lambda name: name == "")
    assert not store.stored


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    moves=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 40)), min_size=4, max_size=14),
)
def test_whatever_is_lost_every_state_is_right(kind: MemoryKind, moves: Sequence[tuple[int, int, int]]) -> None:
    """The driver holds every restored state against its tokens; blobs vanish between the turns."""
    store = SharedStore()
    machines = [Machine(store, kind, budget_bytes=20_000) for _ in range(3)]
    chats = [tokens(seed, 80) for seed in range(4)]
    for turn, (machine, number, lost) in enumerate(moves):
        chats[number] = np.concatenate([chats[number], tokens(500 + turn, 25)])[-600:]
        reply = tokens(900 + turn, 6)
        machines[machine].ask(Prompt(chats[number]), reply)
        chats[number] = np.concatenate([chats[number], reply])
        if lost % 3 == 0:
            store.lose(lost)
