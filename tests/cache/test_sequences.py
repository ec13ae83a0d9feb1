"""The live sequences: what they share with a prompt, and which of them is missed least."""

import numpy as np
import pytest

from leftoff.cache.sequences import Live, LiveTable
from leftoff.engine.memory.base import MemoryKind
from tests.cache.chain import ChainMemory
from tests.cache.trees import Clock, run


def table(num_slots: int, num_sequences: int) -> LiveTable:
    return LiveTable(ChainMemory(MemoryKind.HYBRID, num_sequences), num_slots, Clock())


def fill(lives: LiveTable, *seqs: int, namespace: str = "") -> None:
    """In this order."""
    for seq in seqs:
        lives[seq].replace(run((seq, 10)), namespace)
        lives.use(lives[seq])


def test_tokens_grow_past_the_first_capacity() -> None:
    live = Live(0, is_slot=True)
    tokens = np.arange(5000, dtype=np.int32)
    for start in range(0, 5000, 700):
        live.append(tokens[start : start + 700])
    np.testing.assert_array_equal(live.tokens, tokens)


def test_replacing_forgets_what_was_there() -> None:
    live = Live(0, is_slot=True)
    live.append(run((1, 50)))
    live.replace(run((2, 10)), "tenant")
    assert (live.length, live.namespace) == (10, "tenant")
    assert live.shared_with(run((1, 50))) == 0


@pytest.mark.parametrize(
    ("other", "expected"),
    [(run((1, 30), (3, 5)), 30), (run((1, 30)), 30), (run((1, 30), (2, 20), (4, 9)), 50), (run((9, 3)), 0)],
)
def test_what_is_shared_is_counted_in_tokens(other: np.ndarray, expected: int) -> None:
    live = Live(0, is_slot=True)
    live.append(run((1, 30), (2, 20)))
    assert live.shared_with(other) == expected


def test_slots_come_first_and_the_rest_is_spare() -> None:
    lives = table(2, 5)
    assert [live.seq for live in lives.slots] == [0, 1]
    assert [live.seq for live in lives.spares] == [2, 3, 4]


def test_there_are_no_more_slots_than_sequences() -> None:
    assert len(table(4, 1).slots) == 1


def test_an_empty_slot_is_used_first_then_the_one_used_longest_ago() -> None:
    lives = table(3, 3)
    fill(lives, 1, 0)
    assert lives.least_missed() is lives[2]
    fill(lives, 2)
    assert lives.least_missed() is lives[1]


def test_the_cheapest_to_set_aside_is_used_first_unless_it_rests_for_long() -> None:
    lives = table(2, 2)
    fill(lives, 0, 1)
    price = {lives[0]: 30, lives[1]: 20}.__getitem__
    assert lives.least_missed(price) is lives[1]
    lives[0].last_used -= 60
    assert lives.least_missed(price) is lives[0], "after a minute it counts half"


def test_a_busy_slot_is_not_idle() -> None:
    lives = table(2, 2)
    lives[0].is_busy = lives[1].is_busy = True
    assert not lives.idle_slots


def test_a_spare_that_is_needed_is_not_overwritten() -> None:
    lives = table(1, 3)
    fill(lives, 1, 2)
    assert lives.spare_to_use(besides=None) is lives[1]
    assert lives.spare_to_use(besides=lives[1]) is lives[2]
    assert table(1, 1).spare_to_use(besides=None) is None


def test_parked_states_are_dropped_before_idle_slots_and_busy_ones_never() -> None:
    lives = table(2, 4)
    fill(lives, 0, 1, 3, 2)
    lives[0].is_busy = True
    dropped = []
    while (victim := lives.droppable()) is not None:
        dropped.append(victim.seq)
        victim.length = 0
    assert dropped == [3, 2, 1]


def test_what_is_kept_is_not_dropped() -> None:
    lives = table(2, 2)
    fill(lives, 0, 1)
    assert lives.droppable([lives[0], None]) is lives[1]
    assert lives.droppable([lives[0], lives[1]]) is None


def test_a_namespace_sees_only_its_own() -> None:
    lives = table(3, 3)
    fill(lives, 0, namespace="one")
    fill(lives, 1, namespace="two")
    assert lives.shared_with(run((0, 20)), "one") == {lives[0]: 10}
    assert lives.shared_with(run((0, 20)), "two") == {}
    assert lives.shared_with(run((0, 20)), "") == {}, "an empty sequence shares nothing"
