"""A cancelled decode stops early, and every sequence it was reading either goes on exactly or says that it cannot."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.errors import CancelledError, InputError
from leftoff.engine.memory.arena import view_of
from leftoff.engine.memory.base import MemoryKind, Share
from leftoff.types import Logits, Tokens
from tests.engine.scenario import asked, cold, fork, load, prompt, read, save
from tests.factory import Scale, model_path

# Larger than the other tests' models, and read in many small steps: a decode that takes long enough to be stopped.
SCALE = Scale(width=2, depth=2)
SETTINGS = ContextSettings(num_cells=2048, num_sequences=4, batch_tokens=2048, micro_batch_tokens=64, threads=1)
LENGTH, TAIL, LONG = 128, 20, 448

with_any_memory = pytest.mark.parametrize("engine", ["llama", "qwen35", "gemma3", "mamba2", "deepseek4"], indirect=True)
attention = pytest.mark.parametrize("engine", ["llama"], indirect=True)
hybrid = pytest.mark.parametrize("engine", ["qwen35", "deepseek4"], indirect=True)
window = pytest.mark.parametrize("engine", ["gemma3"], indirect=True)
whole = pytest.mark.parametrize("engine", ["mamba2"], indirect=True)


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest) -> Iterator[LlamaEngine]:
    with LlamaEngine.open(model_path(request.param, SCALE), SETTINGS) as engine:
        yield engine


@dataclass(frozen=True)
class Told:
    """A prompt, and what an engine says after it that was never cancelled."""

    tokens: Tokens
    expected: Logits


@pytest.fixture(scope="module")
def num_steps(engine: LlamaEngine) -> int:
    """Of the long decode, when nobody cancels it."""
    engine.memory.drop(0)
    with asked(engine) as answers:
        engine.decode([Work(0, prompt(engine, LONG))])
    assert not any(answers)
    return len(answers)


def decode_and_cancel(engine: LlamaEngine, works: list[Work], num_steps: int) -> int:
    """Cancels from another thread when a third of the work is done. Returns after how many steps it ended."""

    def cancel_on_the_way(step: int) -> None:
        if step == num_steps // 3:
            other = threading.Thread(target=engine.cancel)
            other.start()
            other.join()

    with asked(engine, cancel_on_the_way) as answers, pytest.raises(CancelledError, match="cancelled"):
        engine.decode(works)
    return len(answers)


def long_work(engine: LlamaEngine, seq: int = 0, num_tokens: int = LONG) -> Work:
    return Work(seq, prompt(engine, num_tokens, seed=5))


@pytest.fixture(scope="module")
def told(engine: LlamaEngine) -> Told:
    tokens = prompt(engine, LENGTH + TAIL)
    expected, _, _ = cold(engine, tokens)
    wrong, _, _ = cold(engine, np.concatenate([tokens[1:LENGTH], tokens[LENGTH - 1 :]]))
    assert np.abs(wrong - expected).max() > 0.1, "another past must show"
    return Told(tokens, expected)


def assert_goes_on_exactly(engine: LlamaEngine, seq: int, told: Told) -> None:
    """What follows on the first LENGTH tokens is what an engine would say that was never cancelled."""
    assert engine.memory.length(seq) == LENGTH
    found = read(engine, seq, told.tokens[LENGTH:])
    if engine.memory.kind is MemoryKind.WINDOW:  # its cells may lie elsewhere now, which moves the rounding
        np.testing.assert_allclose(found, told.expected, atol=0.02)
    else:
        np.testing.assert_array_equal(found, told.expected)


@with_any_memory
def test_a_decode_stops_long_before_its_end(engine: LlamaEngine, num_steps: int, told: Told) -> None:
    assert decode_and_cancel(engine, [long_work(engine)], num_steps) < 0.4 * num_steps
    engine.memory.drop(0)
    read(engine, 0, told.tokens[:LENGTH])
    assert_goes_on_exactly(engine, 0, told)


@with_any_memory
def test_a_cancelled_first_decode_leaves_an_empty_sequence(engine: LlamaEngine, num_steps: int, told: Told) -> None:
    decode_and_cancel(engine, [long_work(engine)], num_steps)
    memory = engine.memory
    assert (memory.length(0), memory.is_whole(0), memory.free_cells) == (0, True, memory.num_cells)
    read(engine, 0, told.tokens[:LENGTH])
    assert_goes_on_exactly(engine, 0, told)


@attention
def test_attention_goes_on_where_it_stood(engine: LlamaEngine, num_steps: int, told: Told) -> None:
    read(engine, 0, told.tokens[:LENGTH])
    before = save(engine, 0).content
    decode_and_cancel(engine, [long_work(engine)], num_steps)
    assert engine.memory.is_whole(0)
    assert engine.memory.free_cells == engine.memory.num_cells - LENGTH
    assert save(engine, 0).content == before
    assert_goes_on_exactly(engine, 0, told)


@window
def test_a_window_that_remembers_goes_on_where_it_stood(engine: LlamaEngine, told: Told) -> None:
    read(engine, 0, told.tokens[:LENGTH])
    before = save(engine, 0).content
    engine.cancel()
    with pytest.raises(CancelledError):
        engine.decode([long_work(engine, num_tokens=8)])
    assert engine.memory.is_whole(0)
    assert save(engine, 0).content == before
    assert_goes_on_exactly(engine, 0, told)


@window
def test_a_window_that_forgot_says_so_until_it_is_restored(engine: LlamaEngine, num_steps: int, told: Told) -> None:
    read(engine, 0, told.tokens[:LENGTH])
    saved = save(engine, 0)
    # three times as long: the third that is read fills every cell of the window anew
    decode_and_cancel(engine, [long_work(engine, num_tokens=3 * LONG - LENGTH)], 3 * num_steps)
    assert_not_whole(engine, 0)
    engine.memory.restore(0, LENGTH, share=Share(0, LENGTH), snapshot=saved.snapshot)
    assert save(engine, 0).content == saved.content
    assert_goes_on_exactly(engine, 0, told)


@hybrid
def test_a_hybrid_is_not_whole_until_it_is_restored(engine: LlamaEngine, num_steps: int, told: Told) -> None:
    read(engine, 0, told.tokens[:LENGTH])
    saved = save(engine, 0)
    decode_and_cancel(engine, [long_work(engine)], num_steps)
    assert_not_whole(engine, 0)
    for page in saved.pages:  # its attention stands
        again = engine.memory.save_page(0, page.start, page.end)
        np.testing.assert_array_equal(view_of(again.data), view_of(page.data))
    engine.memory.restore(0, LENGTH, share=Share(0, LENGTH), snapshot=saved.snapshot)
    assert engine.memory.is_whole(0)
    assert_goes_on_exactly(engine, 0, told)


@hybrid
def test_a_hybrid_that_is_not_whole_may_be_dropped_cut_to_nothing_or_replaced(
    engine: LlamaEngine, num_steps: int, told: Told
) -> None:
    memory = engine.memory
    read(engine, 0, told.tokens[:LENGTH])
    saved = save(engine, 0)
    ways_out = (partial(memory.drop, 0), partial(fork, memory, 0, 0, 0), partial(load, engine, 0, saved))
    for way_out in ways_out:
        load(engine, 0, saved)
        decode_and_cancel(engine, [long_work(engine)], num_steps)
        assert not memory.is_whole(0)
        way_out()
        assert memory.is_whole(0)
        load(engine, 0, saved)
    assert_goes_on_exactly(engine, 0, told)


@whole
def test_memory_in_one_lump_is_emptied_and_says_so(engine: LlamaEngine, num_steps: int, told: Told) -> None:
    read(engine, 0, told.tokens[:LENGTH])
    saved = save(engine, 0)
    decode_and_cancel(engine, [long_work(engine)], num_steps)
    assert engine.memory.length(0) == 0
    assert not engine.memory.is_whole(0)
    with pytest.raises(InputError, match="cancelled halfway"):
        engine.decode([Work(0, told.tokens[LENGTH:])])
    load(engine, 0, saved)
    assert_goes_on_exactly(engine, 0, told)


@with_any_memory
def test_a_sequence_that_is_cut_to_nothing_begins_anew(engine: LlamaEngine, told: Told) -> None:
    read(engine, 0, prompt(engine, 30, seed=9))
    fork(engine.memory, 0, 0, 0)
    read(engine, 0, told.tokens[:LENGTH])
    assert_goes_on_exactly(engine, 0, told)


@pytest.mark.parametrize("engine", ["llama", "qwen35", "mamba2", "deepseek4"], indirect=True)
def test_all_sequences_of_the_batch_are_stopped_and_no_other(engine: LlamaEngine, num_steps: int, told: Told) -> None:
    memory = engine.memory
    prompts = [told.tokens, *(prompt(engine, LENGTH + TAIL, seed=seq) for seq in (2, 3))]
    for seq, tokens in enumerate(prompts):
        read(engine, seq, tokens[:LENGTH])
    saved = [save(engine, seq) for seq in range(3)]
    works = [long_work(engine, seq, LONG // 2) for seq in (0, 1)]
    decode_and_cancel(engine, works, num_steps)
    emptied = memory.kind is MemoryKind.RECURRENT
    assert [memory.length(seq) for seq in range(4)] == [0 if emptied else LENGTH] * 2 + [LENGTH, 0]
    assert [memory.is_whole(seq) for seq in range(3)] == [memory.kind is MemoryKind.ATTENTION] * 2 + [True]
    assert save(engine, 2).content == saved[2].content
    for seq in (0, 1):
        load(engine, seq, saved[seq])
        assert save(engine, seq).content == saved[seq].content
    memory.drop(1)
    memory.drop(2)
    assert_goes_on_exactly(engine, 0, told)


@with_any_memory
def test_a_cancel_stops_one_decode_and_can_be_forgotten(engine: LlamaEngine) -> None:
    tokens = prompt(engine, 5)
    engine.cancel()
    with pytest.raises(CancelledError):
        engine.decode([Work(0, tokens)])
    engine.decode([Work(0, tokens)])
    engine.cancel()
    engine.context.forget_cancel()
    engine.decode([Work(0, tokens)])
    assert engine.memory.length(0) == 10


def assert_not_whole(engine: LlamaEngine, seq: int) -> None:
    memory = engine.memory
    assert memory.length(seq) == LENGTH
    assert not memory.is_whole(seq)
    with pytest.raises(InputError, match="cancelled halfway: restore or drop it first"):
        engine.decode([Work(seq, prompt(engine, 1))])
    with pytest.raises(InputError, match="cancelled halfway: restore or drop it first"):
        memory.save_snapshot(seq)
    assert not memory.can_cut(seq, LENGTH)
    with pytest.raises(InputError, match="needs a snapshot"):
        fork(memory, seq, 3, LENGTH)
    assert memory.length(3) == 0
