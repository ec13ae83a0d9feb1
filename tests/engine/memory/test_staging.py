"""State that passes through the locked area, as it does with a GPU, is the same state: here it is ordinary memory."""

import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from leftoff.engine.engine import LlamaEngine
from leftoff.engine.memory.arena import Arena, Buffer, Raw, view_of
from leftoff.engine.memory.locked import SpareMemory
from leftoff.engine.memory.staging import LockedBuffer, Staging
from leftoff.types import Logits, Tokens
from tests.engine.scenario import Saved, cold, load, ordinary, prompt, read, save, with_locked_memory
from tests.factory import ARCHITECTURES
from tests.patience import PATIENCE_S, until

LENGTH = 203
TAIL = 37


@dataclass(frozen=True)
class Before:
    """A state that was saved without locked memory, and what is said after it by an engine that never stopped."""

    saved: Saved
    tail: Tokens
    expected: Logits


@pytest.fixture(scope="module")
def before(engine: LlamaEngine) -> Before:
    tokens = prompt(engine, LENGTH + TAIL)
    expected, _, _ = cold(engine, tokens)
    read(engine, 0, tokens[:LENGTH])
    return Before(save(engine, 0), tokens[LENGTH:], expected)


@pytest.fixture
def staged(engine: LlamaEngine, num_pages: float) -> Iterator[LlamaEngine]:
    """The engine with room to transfer so many pages of 50 tokens at once."""
    unit = engine.memory.page_bytes(50) or engine.memory.snapshot_bytes(LENGTH)
    patience_s = 0.5 if num_pages >= 1 else 0.0  # what never fits is not waited for
    with with_locked_memory(engine, 3 * (int(num_pages * unit) + 2048), patience_s):
        yield engine


@pytest.mark.parametrize("num_pages", [0.5, 1, 2, 100])
@pytest.mark.parametrize("engine", ARCHITECTURES, indirect=True)
def test_a_sequence_goes_on_bit_identically(before: Before, staged: LlamaEngine) -> None:
    load(staged, 0, before.saved)
    saved = save(staged, 0)
    assert saved.content == before.saved.content
    staged.memory.drop(0)
    load(staged, 0, saved)
    np.testing.assert_array_equal(read(staged, 0, before.tail), before.expected)


@pytest.mark.parametrize("num_pages", [0.5, 2, 100])
@pytest.mark.parametrize("engine", ["qwen35", "gemma3"], indirect=True)
def test_the_bytes_are_the_same_with_and_without_locked_memory(engine: LlamaEngine, staged: LlamaEngine) -> None:
    read(staged, 0, prompt(staged, LENGTH))
    with_locked = save(staged, 0).content
    engine.context.staging = Staging(engine.context.arena)
    assert save(engine, 0).content == with_locked


@pytest.mark.parametrize("num_pages", [100])
@pytest.mark.parametrize("engine", ["llama", "qwen35"], indirect=True)
def test_pages_that_follow_each_other_are_saved_together_and_are_those_that_are_saved_alone(
    staged: LlamaEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(staged, 0, prompt(staged, LENGTH))
    spans = [(0, 50), (50, 100), (150, 200)]
    copy, copied = staged.context.copy, list[tuple[int, ...]]()

    def watched(source: int, target: int, *span: int) -> None:
        copied.append(span)
        copy(source, target, *span)

    with monkeypatch.context() as patch:
        patch.setattr(staged.context, "copy", watched)
        together = staged.memory.save_pages(0, spans)
    assert copied == [(0, 100), (150, 200)], "one pass over all cells for each, and nothing that was not asked for"
    alone = [page for span in spans for page in staged.memory.save_pages(0, [span])]
    assert [(page.start, page.end) for page in together] == spans
    assert [view_of(page.data).tobytes() for page in together] == [view_of(page.data).tobytes() for page in alone]


@pytest.mark.parametrize("num_pages", [1, 2])
@pytest.mark.parametrize("engine", ["llama", "gemma3", "qwen35"], indirect=True)
def test_a_load_never_waits_for_memory_that_it_holds_itself(staged: LlamaEngine) -> None:
    read(staged, 0, prompt(staged, LENGTH))
    saved = save(staged, 0)
    assert saved.content  # threads have copied all of it
    staging, area = staged.context.staging, 3 * (staged.memory.page_bytes(50) + 2048)
    staged.context.staging = hasty = Staging(staged.context.arena, ordinary, area, patience_s=0.0)
    is_locked: list[bool] = []

    def take(nbytes: int) -> Buffer:
        buffer = Staging.take(hasty, nbytes)
        is_locked.append(isinstance(buffer, LockedBuffer))
        return buffer

    hasty.take = take  # type: ignore[method-assign]
    load(staged, 1, saved)
    staged.context.staging = staging
    hasty.close()
    assert len(is_locked) > 3
    assert all(is_locked)


@pytest.mark.parametrize("num_pages", [2])
@pytest.mark.parametrize("engine", ["qwen35"], indirect=True)
def test_all_of_the_area_comes_back(staged: LlamaEngine) -> None:
    staging = staged.context.staging
    read(staged, 0, prompt(staged, LENGTH))
    saved: list[Saved] = [save(staged, 0) for _ in range(20)]
    for each in saved:
        assert each.content == saved[0].content
        load(staged, 1, each)
    assert all(isinstance(staging.take(1), LockedBuffer) for _ in range(20))


def test_whoever_looks_at_a_buffer_waits_for_its_bytes() -> None:
    staging, go_on = Staging(Arena(), ordinary, 1 << 16), threading.Event()
    chunk = staging.take(1 << 10)
    chunk.view[:] = 7
    blocked = [staging._store_threads.submit(go_on.wait, PATIENCE_S) for _ in range(8)]
    kept = [staging.keep(chunk, 1 << 10) for _ in range(4)]
    del chunk
    assert staging.is_lent
    go_on.set()
    assert all(each.result() for each in blocked)
    assert all((buffer.view == 7).all() for buffer in kept)
    assert until(lambda: not staging.is_lent)
    staging.close()


def test_where_too_little_of_the_area_is_free_ordinary_memory_is_used() -> None:
    staging = Staging(Arena(), ordinary, 1 << 16, patience_s=0.01)
    taken = [staging.take(20 << 10) for _ in range(5)]
    assert [isinstance(buffer, LockedBuffer) for buffer in taken] == [True, True, True, False, False]
    assert not isinstance(staging.take(1 << 17), LockedBuffer), "larger than the area"
    del taken[1]
    assert isinstance(staging.take(20 << 10), LockedBuffer), "the hole between two others"
    staging.close()


def test_nothing_is_locked_if_no_memory_can_be() -> None:
    refused = Staging(Arena(), lambda _: None)
    assert not refused.is_locked
    assert not isinstance(refused.take(100), LockedBuffer)
    refused.close()


def test_the_area_of_an_engine_that_was_closed_goes_to_the_next() -> None:
    spare, made = SpareMemory(), []

    def opened() -> Staging:
        return Staging(Arena(), partial(spare.take, lock_more), 1 << 16, leave=spare.leave)

    def lock_more(nbytes: int) -> Raw:
        made.append(nbytes)
        return ordinary(nbytes)

    first = opened()
    second = opened()
    first.close()
    third = opened()
    assert made == [1 << 16] * 2, "of three, of which two were there at once"
    assert third.is_locked
    second.close()
    third.close()


def test_an_area_that_nobody_takes_is_given_back() -> None:
    spare = SpareMemory(0.01)
    memory = ordinary(1 << 16)
    gone = weakref.ref(memory)
    spare.leave(memory)
    del memory
    assert until(lambda: gone() is None)
