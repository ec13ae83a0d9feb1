"""Full passes of the garbage collector come when nothing runs."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from leftoff.server.garbage import full_passes_when_idle
from tests.patience import until


@pytest.fixture
def passes() -> Iterator[list[int]]:
    """The generation of every pass."""
    seen: list[int] = []

    def saw(phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            seen.append(info["generation"])

    gc.callbacks.append(saw)
    yield seen
    gc.callbacks.remove(saw)
    gc.freeze()  # as at the start of the tests


def make_much() -> list[list[int]]:
    return [[number] for number in range(200_000)]


def test_a_full_pass_waits_until_nothing_runs(passes: list[int]) -> None:
    is_idle = False
    with full_passes_when_idle(lambda: is_idle, poll_s=0.01):
        assert gc.get_freeze_count()
        passes.clear()
        kept = make_much()
        assert 0 in passes
        assert 2 not in passes
        is_idle = True
        assert until(lambda: 2 in passes)
    assert not gc.get_freeze_count()
    assert kept


class Cycle:
    def __init__(self) -> None:
        self.itself = self


def test_what_was_there_at_the_start_is_freed_as_well(passes: list[int]) -> None:
    early = [Cycle()]
    gone = weakref.ref(early[0])
    with full_passes_when_idle(lambda: not early, poll_s=0.01):
        passes.clear()
        assert make_much()
        assert gone() is not None
        early.clear()
        assert until(lambda: gone() is None)
    assert 2 in passes


def test_without_it_full_passes_come_in_between(passes: list[int]) -> None:
    gc.freeze()  # what is there does not count
    gc.collect()
    passes.clear()
    assert make_much()
    assert 2 in passes


def test_where_little_has_come_there_is_no_full_pass(passes: list[int]) -> None:
    looks = 0

    def is_idle() -> bool:
        nonlocal looks
        looks += 1
        return True

    with full_passes_when_idle(is_idle, poll_s=0.01):
        passes.clear()
        assert until(lambda: looks > 5)
        assert 2 not in passes
