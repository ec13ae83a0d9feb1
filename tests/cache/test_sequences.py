"""The sequences in the engine: what they share with a prompt, their transitions, and which is used or dropped next."""

from collections.abc import Callable

import numpy as np
import pytest

from lab.simulate.policies import LeastRecentlyUsed
from leftoff.cache.budget import ByteBudget
from leftoff.cache.node import ResumePoint
from leftoff.cache.sequences import EngineSequence, SequenceState, SequenceTable
from leftoff.engine.memory.base import MemoryKind
from tests.cache.chain import ChainMemory
from tests.cache.trees import UNLIMITED, Clock, Grove, run

CLOCK = Clock()
RAM = ByteBudget("RAM", UNLIMITED, LeastRecentlyUsed(), CLOCK)


def table(num_slots: int, num_sequences: int) -> SequenceTable:
    return SequenceTable(ChainMemory(MemoryKind.HYBRID, num_sequences), num_slots, CLOCK, RAM)


def fill(sequences: SequenceTable, *seqs: int, namespace: str = "") -> None:
    """In this order."""
    for seq in seqs:
        sequences[seq].start(run((seq, 10)), namespace)
        sequences[seq].finish(10, CLOCK())


def test_tokens_grow_past_the_first_capacity() -> None:
    sequence = EngineSequence(0, RAM)
    tokens = np.arange(5000, dtype=np.int32)
    sequence.start(tokens[:0], "")
    for start in range(0, 5000, 700):
        sequence.append(tokens[start : start + 700])
    np.testing.assert_array_equal(sequence.tokens, tokens)


def test_replacing_forgets_what_was_there() -> None:
    sequence = EngineSequence(0, RAM)
    sequence.start(run((1, 50)), "")
    sequence.finish(50, now=0.0)
    sequence.start(run((2, 10)), "tenant")
    assert (sequence.length, sequence.namespace) == (10, "tenant")
    assert sequence.shared_with(run((1, 50))) == 0


@pytest.mark.parametrize(
    ("other", "expected"),
    [(run((1, 30), (3, 5)), 30), (run((1, 30)), 30), (run((1, 30), (2, 20), (4, 9)), 50), (run((9, 3)), 0)],
)
def test_what_is_shared_is_counted_in_tokens(other: np.ndarray, expected: int) -> None:
    sequence = EngineSequence(0, RAM)
    sequence.start(run((1, 30), (2, 20)), "")
    assert sequence.shared_with(other) == expected


def test_as_many_run_as_there_are_slots() -> None:
    sequences = table(2, 5)
    assert (len(sequences), sequences.num_free_slots) == (5, 2)
    sequences[3].start(run((1, 10)), "")
    assert sequences.num_free_slots == 1
    assert [sequence.seq for sequence in sequences.slots] == [0, 3]
    sequences[4].start(run((2, 10)), "")
    assert sequences.num_free_slots == 0
    assert [sequence.seq for sequence in sequences.slots] == [3, 4]


def test_there_are_no_more_slots_than_sequences() -> None:
    assert len(table(4, 1).slots) == 1


def test_an_empty_slot_is_used_first_then_the_one_used_longest_ago() -> None:
    sequences = table(3, 3)
    fill(sequences, 1, 0)
    assert sequences.to_overwrite(lambda _: 1) is sequences[2]
    fill(sequences, 2)
    assert sequences.to_overwrite(lambda _: 1) is sequences[1]


def test_the_cheapest_to_set_aside_is_used_first_unless_it_rests_for_long() -> None:
    sequences = table(2, 2)
    fill(sequences, 0, 1)
    price = {sequences[0]: 30, sequences[1]: 20}.__getitem__
    assert sequences.to_overwrite(price) is sequences[1]
    sequences[0].last_used -= 20
    assert sequences.to_overwrite(price) is sequences[0], "after twenty seconds it counts half"


def test_a_busy_slot_is_not_idle() -> None:
    sequences = table(2, 2)
    sequences[0].start(run((1, 10)), "")
    sequences[1].start(run((2, 10)), "")
    assert not sequences.idle


def test_the_least_recently_used_is_dropped_first_and_a_busy_one_never() -> None:
    sequences = table(2, 4)
    fill(sequences, 0, 1, 3, 2)
    sequences[0].start(run((0, 10)), "")
    dropped = []
    while (victim := sequences.next_to_drop()) is not None:
        dropped.append(victim.seq)
        victim.clear()
    assert dropped == [1, 3, 2]


def test_what_is_kept_is_not_dropped() -> None:
    sequences = table(2, 2)
    fill(sequences, 0, 1)
    assert sequences.next_to_drop([sequences[0], None]) is sequences[1]
    assert sequences.next_to_drop([sequences[0], sequences[1]]) is None


def test_a_namespace_sees_only_its_own() -> None:
    sequences = table(3, 3)
    fill(sequences, 0, namespace="one")
    fill(sequences, 1, namespace="two")
    assert sequences.shared_with(run((0, 20)), "one") == {sequences[0]: 10}
    assert sequences.shared_with(run((0, 20)), "two") == {}
    assert sequences.shared_with(run((0, 20)), "") == {}, "an empty sequence shares nothing"


# --- transitions


def started(grove: Grove, point: ResumePoint | None = None) -> EngineSequence:
    sequence = EngineSequence(0, grove.budget)
    sequence.start(run((1, 10)), "", point)
    return sequence


def finished(grove: Grove, point: ResumePoint | None = None) -> EngineSequence:
    sequence = started(grove, point)
    sequence.finish(10, now=1.0)
    return sequence


def test_a_turn_runs_rests_is_saved_and_leaves() -> None:
    sequence = EngineSequence(0, Grove().budget)
    seen = [(sequence.state, sequence.is_saved, sequence.has_ram_pages)]
    transitions: list[Callable[[], None]] = [
        lambda: sequence.start(run((1, 10)), ""),
        lambda: sequence.append(run((1, 5))),
        lambda: sequence.finish(15, now=7.0),
        sequence.written_behind,
        sequence.drop_pages,
        sequence.saved,
        sequence.clear,
    ]
    for transition in transitions:
        transition()
        seen.append((sequence.state, sequence.is_saved, sequence.has_ram_pages))
    assert seen == [
        (SequenceState.EMPTY, True, False),
        (SequenceState.RUNNING, False, True),
        (SequenceState.RUNNING, False, True),
        (SequenceState.UNSAVED, False, True),
        (SequenceState.SAVED, True, True),
        (SequenceState.SAVED, True, False),
        (SequenceState.SAVED, True, False),
        (SequenceState.EMPTY, True, False),
    ]
    assert (sequence.length, sequence.last_used) == (0, 7.0)


def test_a_point_counts_the_sequences_that_go_on_from_it() -> None:
    grove = Grove()
    first, second = grove.keep("one"), grove.keep("two")
    sequence = started(grove, first)
    assert (sequence.point, first.num_sequences) == (first, 1)
    sequence.leave_point(second, with_pages=False)
    assert (sequence.point, first.num_sequences, second.num_sequences) == (second, 0, 1)
    sequence.leave_point(None, with_pages=False)
    assert (sequence.point, second.num_sequences) == (None, 0)


@pytest.mark.parametrize("leave", ["saved", "clear"])
def test_a_sequence_that_leaves_lets_go_of_its_point(leave: str) -> None:
    grove = Grove()
    point = grove.keep("one")
    sequence = finished(grove, point)
    assert point.num_sequences == 1
    getattr(sequence, leave)()
    assert (sequence.point, point.num_sequences, sequence.has_ram_pages) == (None, 0, False)


def test_a_point_that_ram_does_not_hold_is_not_followed() -> None:
    elsewhere = Grove().keep("one")
    assert started(Grove(), elsewhere).point is None
    assert elsewhere.num_sequences == 0


def test_going_on_in_place_keeps_the_point() -> None:
    grove = Grove()
    sequence = finished(grove, grove.keep("one"))
    before = sequence.point
    sequence.start(run((1, 10)), "")
    assert sequence.point is before is not None


def test_pages_saved_during_prefill_are_shared_with_ram() -> None:
    sequence = started(Grove())
    sequence.drop_pages()
    sequence.leave_point(None, with_pages=False)
    assert not sequence.has_ram_pages
    sequence.leave_point(None, with_pages=True)
    assert sequence.has_ram_pages


def test_what_ends_without_tokens_is_empty() -> None:
    grove = Grove()
    point = grove.keep("one")
    sequence = started(grove, point)
    sequence.finish(0, now=1.0)
    assert (sequence.state, sequence.point, point.num_sequences) == (SequenceState.EMPTY, None, 0)


def test_what_is_cut_is_offered_to_the_tiers_again() -> None:
    sequence = finished(Grove())
    sequence.written_behind()
    sequence.truncate(4)
    assert (sequence.state, sequence.length) == (SequenceState.UNSAVED, 4)


@pytest.mark.parametrize("transition", ["written_behind", "saved", "clear"])
def test_a_running_sequence_is_neither_saved_nor_dropped(transition: str) -> None:
    with pytest.raises(AssertionError, match="a request runs in it"):
        getattr(started(Grove()), transition)()


@pytest.mark.parametrize(
    "transition", [lambda sequence: sequence.finish(0, now=1.0), lambda sequence: sequence.append(run((1, 5)))]
)
def test_only_a_running_sequence_grows_and_is_finished(transition: Callable[[EngineSequence], None]) -> None:
    with pytest.raises(AssertionError, match="no request runs in it"):
        transition(EngineSequence(0, Grove().budget))
