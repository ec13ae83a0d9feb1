"""Whatever clients do, a turn begins from exactly the state it asked for, within the budget, and says why it read.

Random prompts, edits, branches, concurrent turns, cancels, evictions and tenants, against a memory in which any wrong
or incomplete restore shows.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lab.simulate.policies import POLICIES
from leftoff.cache.blob_tier import TierSettings
from leftoff.cache.cache import Cache
from leftoff.cache.costs import Costs
from leftoff.cache.placement import Placement
from leftoff.cache.restore import Stay
from leftoff.cache.turn import Turn
from leftoff.engine.errors import NoRoomError
from leftoff.engine.memory.base import MemoryKind
from leftoff.types import MessageSpan, Prompt, Tokens
from tests.cache.chain import ChainMemory
from tests.cache.driver import Driver, slowed_by
from tests.cache.memory_blob_store import MemoryBlobStore

NUM_CELLS = 900


class Conversations(RuleBasedStateMachine):
    """What clients do to a server."""

    kind = MemoryKind.HYBRID
    leans_on_disk = False

    @initialize(
        num_slots=st.integers(1, 3),
        num_spares=st.integers(0, 2),
        budget=st.sampled_from([0, 900, 5_000, 20_000, 1 << 30]),
        disk_budget=st.sampled_from([None, 0, 900, 5_000, 20_000, 1 << 30]),
        policy=st.sampled_from(sorted(POLICIES)),
        page_tokens=st.sampled_from([1, 7, 32]),
        gap=st.sampled_from([8, 40]),
        is_on_gpu=st.booleans(),
    )
    def start(
        self,
        num_slots: int,
        num_spares: int,
        budget: int,
        disk_budget: int | None,
        policy: str,
        page_tokens: int,
        gap: int,
        is_on_gpu: bool,
    ) -> None:
        """On a GPU idle sequences stay beside others, and pages are saved in steps once nothing runs."""
        if self.kind is MemoryKind.OPAQUE:
            num_slots, num_spares = 1, 0
        if self.leans_on_disk:
            budget, disk_budget = min(budget, 900), max(disk_budget or 0, 5_000)
        self.now = 0.0
        self.store = MemoryBlobStore()

        def open_cache() -> None:
            self.memory = ChainMemory(self.kind, num_slots + num_spares, NUM_CELLS)
            if is_on_gpu:
                self.memory.group_bytes, self.memory.step_bytes = (self.memory.page_bytes(num) for num in (200, 50))
            tiers = [] if disk_budget is None else [TierSettings(self.store, disk_budget, POLICIES[policy]())]
            self.cache = Cache(
                self.memory,
                num_slots=num_slots,
                budget_bytes=budget,
                tiers=tiers,
                policy=POLICIES[policy](),
                placement=Placement(smallest_gap=gap, slack=4),
                costs=slowed_by(0.0001) if is_on_gpu else Costs(),
                stay=Stay.IF_FASTER if is_on_gpu and num_spares else None,
                clock=self.clock,
                page_tokens=page_tokens,
                seen_tokens=3000,
            )
            self.driver = Driver(self.cache, self.memory, chunk=20)
            self.turns: list[Turn] = []

        self.open_cache = open_cache
        self.known: list[Tokens] = [np.arange(30, dtype=np.int32)]
        self.open_cache()

    def clock(self) -> float:
        self.now += 1.0
        return self.now

    # --- prompts: something known, cut somewhere, with something new behind it

    def prompt(self, data: st.DataObject) -> Prompt:
        known = data.draw(st.sampled_from(self.known))
        cut = data.draw(st.integers(0, known.size))
        size = data.draw(st.integers(0 if cut else 1, 60))
        seed = data.draw(st.integers(0, 3))
        new = np.random.default_rng(seed).integers(0, 5, size).astype(np.int32)
        tokens = np.concatenate([known[:cut], new])[: NUM_CELLS // 4]
        borders = sorted(data.draw(st.sets(st.integers(1, tokens.size), max_size=4)))
        starts = [0, *borders]
        roles = ["system", "user", "assistant", "user", "assistant"]
        messages = [
            MessageSpan(roles[i], start, end) for i, (start, end) in enumerate(zip(starts, borders, strict=False))
        ]
        return Prompt(tokens, tuple(messages))

    @rule(data=st.data(), namespace=st.sampled_from(["", "", "", "other"]))
    def begin(self, data: st.DataObject, namespace: str) -> None:
        turn = self.driver.begin(self.prompt(data), namespace)
        if turn is not None:
            self.turns.append(turn)

    @precondition(lambda self: self.turns)
    @rule(data=st.data(), num_tokens=st.integers(1, 50))
    def read_some(self, data: st.DataObject, num_tokens: int) -> None:
        self.guarded_read(data.draw(st.sampled_from(self.turns)), num_tokens)

    @precondition(lambda self: self.turns)
    @rule(data=st.data(), reply=st.lists(st.integers(0, 4), max_size=30), whole=st.booleans())
    def reply_and_finish(self, data: st.DataObject, reply: list[int], whole: bool) -> None:
        turn = data.draw(st.sampled_from(self.turns))
        if self.guarded_read(turn, None):
            tokens = np.array(reply, np.int32)
            try:
                self.driver.reply(turn, tokens)
            except NoRoomError:
                assert self.memory.free_cells == 0
            held = turn.sequence.tokens.copy()
            self.memory.assert_holds(turn.seq, held)
            self.known.append(held if whole else held[: -len(reply) // 2 or None])
        self.finish(turn)

    @precondition(lambda self: self.turns)
    @rule(data=st.data(), halfway=st.booleans())
    def cancel(self, data: st.DataObject, halfway: bool) -> None:
        turn = data.draw(st.sampled_from(self.turns))
        if halfway:
            self.memory.spoil(turn.seq)
        self.finish(turn)

    @rule()
    def write_behind(self) -> None:
        self.cache.save_idle()

    @rule(often=st.integers(0, 9))
    def clear(self, often: int) -> None:
        if often == 0:
            self.cache.clear()

    # --- what happens to the disk

    @rule(saves=st.booleans())
    def restart(self, saves: bool) -> None:
        if saves:
            for turn in list(self.turns):
                self.finish(turn)
            self.cache.close(1.0)
        self.open_cache()

    @rule(index=st.integers(0, 99), is_told=st.booleans())
    def lose_something(self, index: int, is_told: bool) -> None:
        (self.store.break_down if is_told else self.store.lose)(index)

    @rule(is_full=st.booleans())
    def fill_up(self, is_full: bool) -> None:
        self.store.is_full = is_full

    def guarded_read(self, turn: Turn, num_tokens: int | None) -> bool:
        """Reads, unless the other turns leave no room."""
        try:
            self.driver.read(turn, num_tokens)
        except NoRoomError:
            assert all(sequence.is_busy or sequence.is_empty for sequence in self.cache.sequences), (
                "something could have been dropped"
            )
            return False
        return True

    def finish(self, turn: Turn) -> None:
        self.known.append(turn.prompt.tokens)
        self.turns.remove(turn)
        self.cache.finish(turn)

    @invariant()
    def nothing_contradicts_itself(self) -> None:
        if hasattr(self, "cache"):
            self.cache.check_integrity()
            if self.cache.disk is not None:
                budget = self.cache.disk.budget
                assert self.store.used_bytes <= budget.used_bytes <= budget.budget_bytes
                assert self.store.most_bytes <= budget.budget_bytes
            for sequence in self.cache.sequences:
                if self.memory.is_whole(sequence.seq):
                    self.memory.assert_holds(sequence.seq, sequence.tokens)


@pytest.mark.parametrize("leans_on_disk", [False, True])
@pytest.mark.parametrize("kind", list(MemoryKind))
def test_any_history_of_conversations(kind: MemoryKind, leans_on_disk: bool) -> None:
    machine = type("Conversations", (Conversations,), {"kind": kind, "leans_on_disk": leans_on_disk})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=40,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
            phases=[Phase.generate],  # a failing history is printed as it is: shrinking one takes minutes
        ),
    )
