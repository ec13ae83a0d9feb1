"""Parts of the locked area never overlap, and come back from any thread."""

import threading

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from leftoff.engine.memory.arena import Raw
from leftoff.engine.memory.locked import LockedArea
from tests.patience import PATIENCE_S

SIZE = 1 << 16


def area(patience_s: float = 0.0) -> LockedArea:
    return LockedArea(np.zeros(SIZE, np.uint8), patience_s)


@given(st.lists(st.tuples(st.integers(1, SIZE), st.booleans()), max_size=40))
def test_parts_that_are_lent_do_not_overlap(steps: list[tuple[int, bool]]) -> None:
    locked, lent = area(), list[Raw]()
    for number, (nbytes, gives_back) in enumerate(steps):
        if gives_back and lent:
            locked.give_back(lent.pop(nbytes % len(lent)))
        part = locked.take(nbytes)
        if part is not None:
            part[:] = number % 251
            lent.append(part)
        assert all((each == each[0]).all() for each in lent)
    for part in lent:
        locked.give_back(part)
    assert locked.take(SIZE) is not None


def test_who_finds_no_hole_waits_for_one() -> None:
    locked = area(PATIENCE_S)
    part = locked.take(SIZE)
    threading.Timer(0.05, locked.give_back, [part]).start()
    assert locked.take(SIZE) is not None


def test_what_is_too_large_is_not_waited_for() -> None:
    assert area(PATIENCE_S).take(SIZE + 1) is None
    assert LockedArea(None, PATIENCE_S).take(1) is None
