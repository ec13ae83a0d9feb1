"""Of all ways to resume a prompt the cheapest is taken, and none that leaves a position uncovered is ever offered."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leftoff.cache.costs import Costs
from leftoff.cache.lookup import Lookup
from leftoff.cache.plan import Plan, Planner
from leftoff.cache.sequences import EngineSequence
from leftoff.engine.memory.base import MemoryKind
from leftoff.types import Logits
from tests.cache.chain import BYTES_PER_TOKEN, WINDOW, ChainMemory
from tests.cache.trees import Grove, text

ATTENTION, HYBRID, RECURRENT = MemoryKind.ATTENTION, MemoryKind.HYBRID, MemoryKind.RECURRENT
LOGITS: Logits = np.zeros(1, np.float32)
PAGED = [kind for kind in MemoryKind if kind.has_pages]
WITH_SNAPSHOTS = [kind for kind in MemoryKind if kind.has_snapshots]


@dataclass
class Scene:
    """A tree, and sequences in the engine beside it. One token per letter."""

    kind: MemoryKind
    costs: Costs = field(default_factory=Costs)
    grove: Grove = field(default_factory=Grove)
    sequences: list[EngineSequence] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.memory = ChainMemory(self.kind)
        self.planner = Planner(self.memory, self.costs)

    def sequence(self, letters: str, *, is_busy: bool = False) -> EngineSequence:
        sequence = EngineSequence(len(self.sequences), self.grove.budget)
        sequence.start(text(letters), "")
        if not is_busy:
            sequence.finish(sequence.length, now=0.0)
        self.memory.decode(sequence.seq, text(letters))
        self.sequences.append(sequence)
        return sequence

    def keep(self, letters: str, *positions: int, covered: int | None = None, logits: Logits | None = None) -> None:
        """Snapshots at these positions, and pages up to `covered`."""
        end = len(letters) if covered is None else covered
        if self.kind.has_pages and end:
            self.grove.cover(letters, 0, end)
        for position in positions:
            self.grove.keep(letters[:position], nbytes=400 if self.kind.has_snapshots else 0, logits=logits)

    def lookup(self, letters: str, *, is_only_read: bool = False) -> Lookup:
        shared = {sequence: common for sequence in self.sequences if (common := sequence.shared_with(text(letters)))}
        match = self.grove.tree.match(text(letters))
        return Lookup(text(letters), "", match, shared=shared, is_only_read=is_only_read)

    def best(self, letters: str, *, is_only_read: bool = False) -> Plan:
        lookup = self.lookup(letters, is_only_read=is_only_read)
        plan = self.planner.best(lookup)
        plans = [Plan(lookup), *self.planner.candidates(lookup)]
        assert self._weight(plan) == min(self._weight(each) for each in plans), "none is overlooked"
        covered = [plan.shared] + [end for part in plan.pages for end in (part.start, part.end)]
        if self.kind.has_pages:
            assert covered[::2] == [*covered[1::2], plan.resume], "shared part and pages follow on each other"
        return plan

    def _weight(self, plan: Plan) -> tuple[float, int]:
        prefill_ms = self.costs.prefill_ms(int(plan.lookup.tokens.size) - plan.resume)
        return prefill_ms + self.planner.loading_ms(plan), -plan.resume


# --- each source wins when it should


@pytest.mark.parametrize("kind", list(MemoryKind))
def test_cold_when_nothing_is_known(kind: MemoryKind) -> None:
    scene = Scene(kind)
    scene.sequence("something else")
    plan = scene.best("a new prompt")
    assert plan == Plan(plan.lookup)
    assert plan.source == "nothing"


@pytest.mark.parametrize("kind", list(MemoryKind))
def test_going_on_in_place(kind: MemoryKind) -> None:
    scene = Scene(kind)
    sequence = scene.sequence("turn one")
    scene.keep("turn one", 8)
    plan = scene.best("turn one, turn two")
    assert (plan.sequence, plan.resume, plan.goes_on, plan.source) == (sequence, 8, True, "a live slot")
    assert plan.snapshot is None, "nothing is loaded"


def test_a_fork_from_a_sequence_that_is_being_read_by_another_turn() -> None:
    scene = Scene(ATTENTION)
    busy = scene.sequence("header, first question", is_busy=True)
    plan = scene.best("header, second question")
    assert (plan.sequence, plan.resume, plan.source) == (busy, 8, "a shared slot")


@pytest.mark.parametrize("kind", [HYBRID, MemoryKind.WINDOW])
def test_attention_shared_with_a_busy_sequence_and_a_snapshot(kind: MemoryKind) -> None:
    scene = Scene(kind)
    busy = scene.sequence("header, first question" + "x" * WINDOW, is_busy=True)
    scene.keep("header, first question", 8, covered=0)
    plan = scene.best("header, second question")
    assert (plan.sequence, plan.shared, plan.resume, plan.source) == (busy, 8, 8, "RAM")
    assert plan.snapshot is not None


def test_shared_attention_then_pages_then_a_snapshot() -> None:
    scene = Scene(HYBRID)
    sequence = scene.sequence("header, other")
    scene.keep("header, first question", 22)
    plan = scene.best("header, first question, again")
    assert (plan.sequence, plan.shared, plan.resume) == (sequence, 8, 22)
    assert [(part.start, part.end) for part in plan.pages] == [(8, 22)]


@pytest.mark.parametrize("kind", PAGED)
def test_pages_and_a_snapshot(kind: MemoryKind) -> None:
    scene = Scene(kind)
    scene.keep("header, first question", 22)
    plan = scene.best("header, first question, again")
    assert (plan.sequence, plan.resume, plan.source) == (None, 22, "RAM")


@pytest.mark.parametrize("kind", [RECURRENT, MemoryKind.OPAQUE])
def test_a_snapshot_alone_where_there_are_no_pages(kind: MemoryKind) -> None:
    scene = Scene(kind)
    scene.keep("header, first question", 8, 22)
    assert scene.best("header, first question, again").resume == 22
    assert scene.best("header, second question").resume == 8


def test_attention_resumes_in_the_middle_of_a_page() -> None:
    scene = Scene(ATTENTION)
    scene.keep("header, first question", 22)
    assert scene.best("header, second question").resume == 8


def test_a_window_is_cut_back_as_far_as_it_remembers() -> None:
    scene = Scene(MemoryKind.WINDOW)
    scene.sequence("x" * 100)
    assert scene.best("x" * (100 - WINDOW) + "yyy").resume == 100 - WINDOW
    assert scene.best("x" * (99 - WINDOW) + "yyy").resume == 0


# --- identical prompts


@pytest.mark.parametrize("kind", list(MemoryKind))
def test_an_identical_prompt_needs_no_compute_only_if_its_logits_are_kept(kind: MemoryKind) -> None:
    scene = Scene(kind)
    scene.keep("the prompt", 6)
    scene.keep("the prompt", 10)
    assert scene.best("the prompt").resume == (9 if kind is ATTENTION else 6), "the last token is read again"
    scene.keep("the prompt", 10, logits=LOGITS)
    assert scene.best("the prompt").resume == 10


@pytest.mark.parametrize("kind", WITH_SNAPSHOTS)
def test_a_live_sequence_that_stands_at_the_end_is_of_no_use_without_logits(kind: MemoryKind) -> None:
    scene = Scene(kind)
    scene.sequence("the prompt")
    assert scene.best("the prompt").resume == (9 if kind is MemoryKind.WINDOW else 0)


@pytest.mark.parametrize("kind", list(MemoryKind))
def test_a_prompt_that_is_only_read_needs_no_logits(kind: MemoryKind) -> None:
    scene = Scene(kind)
    scene.keep("the prompt", 6)
    scene.keep("the prompt", 10)
    assert scene.best("the prompt", is_only_read=True).resume == 10
    live = Scene(kind)
    live.sequence("the prompt")
    assert live.best("the prompt", is_only_read=True).resume == 10


# --- never uncovered


def test_a_snapshot_without_all_pages_before_it_is_not_offered() -> None:
    scene = Scene(HYBRID)
    scene.keep("header, first question", 8, 22, covered=15)
    assert scene.best("header, first question, again").resume == 8


def test_a_gap_in_the_middle_is_seen() -> None:
    scene = Scene(HYBRID)
    scene.keep("abcdefghij", 10, covered=0)
    scene.grove.cover("abcdefghij", 0, 4)
    scene.grove.cover("abcdefghij", 5, 10)
    assert scene.best("abcdefghijk").resume == 0
    scene.sequence("abcde")
    assert scene.best("abcdefghijk").resume == 10, "a sequence in the engine fills it"


@given(st.data(), st.sampled_from(PAGED))
def test_whatever_is_kept_the_best_way_is_covered_and_matches(data: st.DataObject, kind: MemoryKind) -> None:
    texts = st.text("ab", min_size=2, max_size=12)
    scene = Scene(kind)
    for letters in data.draw(st.lists(texts, max_size=5)):
        start, end = sorted(data.draw(st.tuples(st.integers(0, len(letters)), st.integers(0, len(letters)))))
        if start < end:
            scene.grove.cover(letters, start, end)
        scene.grove.keep(letters[: data.draw(st.integers(1, len(letters)))])
    for letters in data.draw(st.lists(texts, max_size=2)):
        scene.sequence(letters)
    asked = data.draw(texts)
    plan = scene.best(asked)  # which checks the cover
    assert plan.resume < len(asked)
    if plan.sequence is not None:
        assert plan.sequence.shared_with(text(asked)) >= plan.shared


# --- by milliseconds


def test_loading_is_not_worth_it_where_computing_is_faster() -> None:
    slow_disk = Costs(prefill_tokens_per_ms=10.0, load_bytes_per_ms=10.0)
    assert Scene(HYBRID, slow_disk).best("x").resume == 0
    scene = Scene(HYBRID, slow_disk)
    scene.keep("x" * 100, 100)
    assert scene.best("x" * 110).resume == 0


def test_pages_are_loaded_as_far_as_computing_takes_longer() -> None:
    costs = Costs(prefill_tokens_per_ms=1.0, load_bytes_per_ms=BYTES_PER_TOKEN / 2, call_ms=0.0)
    scene = Scene(ATTENTION, costs)
    scene.keep("x" * 100)
    assert scene.best("x" * 110).resume == 0, "2 ms to load each of them, 1 to compute"
    costs.load_bytes_per_ms = 2 * BYTES_PER_TOKEN
    assert scene.best("x" * 110).resume == 100
    scene.sequence("x" * 60)
    plan = scene.best("x" * 110)
    assert scene.planner.loading_ms(plan) == pytest.approx(40 / 2), "what the engine holds is not loaded"


@pytest.mark.parametrize("kind", MemoryKind)
def test_nothing_is_read_again_to_save_less_than_a_millisecond(kind: MemoryKind) -> None:
    gpu = Costs(prefill_tokens_per_ms=800.0)
    scene = Scene(kind, gpu)
    scene.keep("x" * 64, 64)
    assert gpu.prefill_ms(70) < gpu.call_ms
    assert Planner(scene.memory, gpu).best(scene.lookup("x" * 70)).resume == 64


def test_a_nearer_way_back_wins_over_a_later_one_that_must_be_loaded() -> None:
    costs = Costs(prefill_tokens_per_ms=1.0, load_bytes_per_ms=50.0, call_ms=0.0)
    scene = Scene(HYBRID, costs)
    scene.sequence("x" * 95)
    scene.keep("x" * 100, 100)
    assert scene.best("x" * 110).resume == 95, "15 ms to compute; 10 to compute and 9.6 to load"
    costs.load_bytes_per_ms = 1e6
    assert scene.best("x" * 110).resume == 100


def test_attention_resumes_behind_a_gap_that_a_sequence_covers() -> None:
    scene = Scene(ATTENTION)
    letters = "header, first question, again"
    sequence = scene.sequence(letters[:16] + "!")
    scene.grove.cover(letters, 0, 8)
    scene.grove.cover(letters, 14, 24)
    plan = scene.best(letters)
    assert (plan.sequence, plan.shared, plan.resume) == (sequence, 16, 24)
    assert [(part.start, part.end) for part in plan.pages] == [(16, 24)]
