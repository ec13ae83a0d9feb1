"""Buffers are used again as soon as, and not before, nobody looks at them any more."""

import gc
import re
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leftoff.engine.errors import InputError
from leftoff.engine.memory.arena import Arena, Buffer, Raw, in_small_pages, view_of
from tests.patience import PATIENCE_S

SIZE = 100_000
_SMAPS = Path("/proc/self/smaps")  # the areas of this process's memory
VIEWS: dict[str, Callable[[Buffer], object]] = {
    "view": lambda buffer: buffer.view,
    "slice": lambda buffer: buffer.view[10:20],
    "matrix": lambda buffer: buffer.view.reshape(10, -1)[:, 1:],
    "memoryview": lambda buffer: buffer.view.data,
}


class Foreign:
    """Bytes that some other engine saved."""

    nbytes = SIZE


def test_a_buffer_given_back_is_handed_out_again() -> None:
    arena = Arena()
    buffer = arena.take(SIZE)
    address = buffer.address
    del buffer
    assert arena.take(SIZE).address == address
    assert arena.take(SIZE - 10).address == address, "a little less fits in the same memory"


def test_two_live_buffers_never_share_memory() -> None:
    arena = Arena()
    buffers = [arena.take(SIZE) for _ in range(10)]
    for number, buffer in enumerate(buffers):
        buffer.view[:] = number
    assert [set(buffer.view.tolist()) for buffer in buffers] == [{number} for number in range(10)]


@pytest.mark.parametrize("kind", VIEWS)
def test_memory_is_not_handed_out_while_a_view_of_it_lives(kind: str) -> None:
    arena = Arena()
    buffer = arena.take(SIZE)
    address = buffer.address
    view = VIEWS[kind](buffer)
    del buffer
    others = [arena.take(SIZE) for _ in range(3)]
    assert address not in {other.address for other in others}
    assert arena.lent_bytes == 4 * others[0].capacity
    del view
    assert arena.take(SIZE).address == address


def test_idle_memory_is_kept_up_to_the_limit() -> None:
    arena = Arena(idle_limit=3 * SIZE)
    buffers = [arena.take(SIZE) for _ in range(6)]
    capacity = buffers[0].capacity
    buffers.clear()
    assert arena.idle_bytes == 3 * SIZE // capacity * capacity
    assert 0 < arena.idle_bytes <= arena.idle_limit
    assert arena.lent_bytes == 0


def test_what_returns_to_an_engine_that_sleeps_is_freed() -> None:
    arena = Arena()
    buffers = [arena.take(SIZE) for _ in range(2)]
    arena.free_idle()
    buffers.pop()
    assert (arena.refill(), arena.idle_bytes) == (False, 0)
    arena.keeps_idle = True
    buffers.pop()
    assert arena.idle_bytes > 0


@settings(deadline=None)
@given(steps=st.lists(st.tuples(st.booleans(), st.integers(0, 1 << 18)), max_size=60))
def test_lent_and_idle_bytes_are_what_is_lent_and_idle(steps: list[tuple[bool, int]]) -> None:
    allocated = 0

    def allocate(nbytes: int) -> Raw:
        nonlocal allocated
        allocated += nbytes
        return np.empty(nbytes, np.uint8)

    arena = Arena(allocate)
    lent: list[Buffer] = []
    for is_take, number in steps:
        if is_take:
            lent.append(arena.take(number))
        elif lent:
            del lent[number % len(lent)]
        assert arena.lent_bytes == sum(buffer.capacity for buffer in lent)
        assert arena.lent_bytes + arena.idle_bytes == allocated


@settings(deadline=None)
@given(nbytes=st.integers(0, 1 << 46))
def test_at_most_an_eighth_of_a_large_buffer_is_unused(nbytes: int) -> None:
    # memory that is described and never touched
    arena = Arena(lambda size: np.broadcast_to(np.zeros((), np.uint8), size), idle_limit=0)
    buffer = arena.take(nbytes)
    assert buffer.nbytes == nbytes <= buffer.capacity
    assert buffer.capacity - nbytes <= max(4096, nbytes // 8)


def test_a_buffer_is_cut_to_what_was_written_and_moves_only_if_that_frees_memory() -> None:
    arena = Arena()
    buffer = arena.take(SIZE)
    buffer.view[:] = np.arange(SIZE) % 251
    fitted = arena.fit(buffer, SIZE - 100)
    assert fitted is buffer
    assert fitted.view.nbytes == SIZE - 100
    smaller = arena.fit(fitted, SIZE // 2)
    np.testing.assert_array_equal(smaller.view, np.arange(SIZE // 2) % 251)
    assert smaller.capacity < buffer.capacity
    del buffer, fitted
    assert arena.lent_bytes == smaller.capacity


def test_memory_that_could_not_be_had_is_not_counted() -> None:
    def refuse(nbytes: int) -> Raw:
        raise MemoryError(nbytes)

    arena = Arena(refuse)
    with pytest.raises(MemoryError):
        arena.take(SIZE)
    assert (arena.lent_bytes, arena.idle_bytes) == (0, 0)


_AREA = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) .*?^VmFlags: ([^\n]*)", re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="the system has no huge pages")
def test_memory_that_threads_fill_lies_in_small_pages() -> None:
    buffer = Arena(in_small_pages).take(64 << 20)
    buffer.view[:] = 7
    areas = [(int(start, 16), int(end, 16), flags) for start, end, flags in _AREA.findall(_SMAPS.read_text())]
    (flags,) = [flags for start, end, flags in areas if start <= buffer.address < end]
    assert "nh" in flags.split()
    assert int(buffer.view.min()) == int(buffer.view.max()) == 7


def test_bytes_of_another_engine_are_refused() -> None:
    with pytest.raises(InputError, match="Foreign was not saved by this engine"):
        view_of(Foreign())


def test_threads_take_and_give_back_at_the_same_time() -> None:
    arena = Arena()
    mixed_up: list[int] = []

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        held: list[Buffer] = []
        for _ in range(300):
            buffer = arena.take(int(rng.integers(1, SIZE)))
            buffer.view[:8] = number
            held.append(buffer)
            if len(held) > 5 and (held.pop(int(rng.integers(5))).view[:8] != number).any():
                mixed_up.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not mixed_up
    assert arena.lent_bytes == 0
    assert arena.idle_bytes > 0


def test_the_garbage_collector_may_give_a_buffer_back_at_any_moment() -> None:
    """Even in the middle of a call on the same arena, in the same thread."""
    arena = Arena()

    def take_while_collecting() -> None:
        thresholds = gc.get_threshold()
        gc.set_threshold(3)
        try:
            for size in range(1, 200):
                _shift: list[list[int]] = [[] for _ in range(size % 7)]  # so that each time it runs at another point
                cycle: list[object] = [arena.take(4096 * size)]
                cycle.append(cycle)
                del cycle
        finally:
            gc.set_threshold(*thresholds)

    thread = threading.Thread(target=take_while_collecting, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), "it waits for a lock that it holds itself"
    gc.collect()
    assert arena.lent_bytes == 0


def test_a_refill_touches_little_at_once() -> None:
    made: list[Raw] = []

    def allocate(nbytes: int) -> Raw:
        made.append(np.ones(nbytes, np.uint8))
        return made[-1]

    arena = Arena(allocate)
    taken = arena.take(50_000_000)
    steps = []
    while arena.refill():
        steps.append(int(np.count_nonzero(made[-1][::4096] == 0)))
    assert len(made) == 2, "one for the one that was taken"
    assert max(np.diff(steps)) <= 512, "2 MiB: a request may come in between"
    assert steps[-1] == -(-made[-1].nbytes // 4096)
    assert arena.idle_bytes == taken.capacity
    assert arena.take(50_000_000).capacity == taken.capacity
    assert len(made) == 2, "it was ready"


def test_a_refill_keeps_no_more_ready_than_may_be_idle() -> None:
    arena = Arena(idle_limit=5 * SIZE)
    taken = [arena.take(2 * SIZE) for _ in range(4)]
    while arena.refill():
        assert arena.idle_bytes <= 5 * SIZE
    assert arena.idle_bytes == 2 * taken[0].capacity, "two of the four"
