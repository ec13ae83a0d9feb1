"""The sequences in the engine: what they share with a prompt, and which of them is missed least."""

import numpy as np
import pytest

from leftoff.cache.sequences import EngineSequence, SequenceTable
from leftoff.engine.memory.base import MemoryKind
from tests.cache.chain import ChainMemory
from tests.cache.trees import Clock, run


def table(num_slots: int, num_sequences: int) -> SequenceTable:
    return SequenceTable(ChainMemory(MemoryKind.HYBRID, num_sequences), num_slots, Clock())


def fill(sequences: SequenceTable, *seqs: int, namespace: str = "") -> None:
    """In this order."""
    for seq in seqs:
        sequences[seq].replace(run((seq, 10)), namespace)
        sequences.use(sequences[seq])


def test_tokens_grow_past_the_first_capacity() -> None:
    sequence = EngineSequence(0, is_slot=True)
    tokens = np.arange(5000, dtype=np.int32)
    for start in range(0, 5000, 700):
        sequence.append(tokens[start : start + 700])
    np.testing.assert_array_equal(sequence.tokens, tokens)


def test_replacing_forgets_what_was_there() -> None:
    sequence = EngineSequence(0, is_slot=True)
    sequence.append(run((1, 50)))
    sequence.replace(run((2, 10)), "tenant")
    assert (sequence.length, sequence.namespace) == (10, "tenant")
    assert sequence.shared_with(run((1, 50))) == 0


@pytest.mark.parametrize(
    ("other", "expected"),
    [(run((1, 30), (3, 5)), 30), (run((1, 30)), 30), (run((1, 30), (2, 20), (4, 9)), 50), (run((9, 3)), 0)],
)
def test_what_is_shared_is_counted_in_tokens(other: np.ndarray, expected: int) -> None:
    sequence = EngineSequence(0, is_slot=True)
    sequence.append(run((1, 30), (2, 20)))
    assert sequence.shared_with(other) == expected


def test_slots_come_first_and_the_rest_is_spare() -> None:
    sequences = table(2, 5)
    assert [sequence.seq for sequence in sequences.slots] == [0, 1]
    assert [sequence.seq for sequence in sequences.spares] == [2, 3, 4]


def test_there_are_no_more_slots_than_sequences() -> None:
    assert len(table(4, 1).slots) == 1


def test_an_empty_slot_is_used_first_then_the_one_used_longest_ago() -> None:
    sequences = table(3, 3)
    fill(sequences, 1, 0)
    assert sequences.least_missed() is sequences[2]
    fill(sequences, 2)
    assert sequences.least_missed() is sequences[1]


def test_the_cheapest_to_set_aside_is_used_first_unless_it_rests_for_long() -> None:
    sequences = table(2, 2)
    fill(sequences, 0, 1)
    price = {sequences[0]: 30, sequences[1]: 20}.__getitem__
    assert sequences.least_missed(price) is sequences[1]
    sequences[0].last_used -= 60
    assert sequences.least_missed(price) is sequences[0], "after a minute it counts half"


def test_a_busy_slot_is_not_idle() -> None:
    sequences = table(2, 2)
    sequences[0].is_busy = sequences[1].is_busy = True
    assert not sequences.idle_slots


def test_a_spare_that_is_needed_is_not_overwritten() -> None:
    sequences = table(1, 3)
    fill(sequences, 1, 2)
    assert sequences.spare_to_use(besides=None) is sequences[1]
    assert sequences.spare_to_use(besides=sequences[1]) is sequences[2]
    assert table(1, 1).spare_to_use(besides=None) is None


def test_parked_states_are_dropped_before_idle_slots_and_busy_ones_never() -> None:
    sequences = table(2, 4)
    fill(sequences, 0, 1, 3, 2)
    sequences[0].is_busy = True
    dropped = []
    while (victim := sequences.droppable()) is not None:
        dropped.append(victim.seq)
        victim.length = 0
    assert dropped == [3, 2, 1]


def test_what_is_kept_is_not_dropped() -> None:
    sequences = table(2, 2)
    fill(sequences, 0, 1)
    assert sequences.droppable([sequences[0], None]) is sequences[1]
    assert sequences.droppable([sequences[0], sequences[1]]) is None


def test_a_namespace_sees_only_its_own() -> None:
    sequences = table(3, 3)
    fill(sequences, 0, namespace="one")
    fill(sequences, 1, namespace="two")
    assert sequences.shared_with(run((0, 20)), "one") == {sequences[0]: 10}
    assert sequences.shared_with(run((0, 20)), "two") == {}
    assert sequences.shared_with(run((0, 20)), "") == {}, "an empty sequence shares nothing"
