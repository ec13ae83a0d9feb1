"""A past that is kept in compressed rows: saved in pages, and as exact beside others as alone."""

from dataclasses import replace

import numpy as np
import pytest

from leftoff.engine.engine import LlamaEngine
from leftoff.engine.memory.base import Share
from leftoff.engine.memory.compressed import CompressedMemory
from tests.engine.conftest import SETTINGS
from tests.engine.scenario import Saved, cold, load, prompt, read, save
from tests.factory import model_path

LENGTH, TAIL, PIECE = 410, 30, 32

sparse = pytest.mark.parametrize("engine", ["deepseek32", "deepseek4"], indirect=True)
compressed = pytest.mark.parametrize("engine", ["deepseek4"], indirect=True)


@sparse
def test_a_wrong_page_shows(engine: LlamaEngine) -> None:
    tokens, other = prompt(engine, LENGTH + TAIL), prompt(engine, LENGTH, seed=2)
    expected, _, _ = cold(engine, tokens)
    read(engine, 1, other)
    wrong = save(engine, 1, page_tokens=128)
    engine.memory.drop(1)
    read(engine, 0, tokens[:LENGTH])
    saved, state = save(engine, 0, page_tokens=128), engine.context.get_state(0).view.copy()
    engine.memory.drop(0)

    load(engine, 0, saved)
    np.testing.assert_array_equal(engine.context.get_state(0).view, state)
    np.testing.assert_array_equal(read(engine, 0, tokens[LENGTH:]), expected)

    assert len(saved.pages) == 4
    for wrong_page in range(4):
        pages = list(saved.pages)
        pages[wrong_page] = wrong.pages[wrong_page]
        load(engine, 0, Saved(LENGTH, tuple(pages), saved.snapshot))
        assert not np.array_equal(engine.context.get_state(0).view, state)
        assert not np.array_equal(read(engine, 0, tokens[LENGTH:]), expected), f"page {wrong_page} must show"


@compressed
def test_snapshots_do_not_grow_and_pages_are_small(engine: LlamaEngine) -> None:
    memory = engine.memory
    assert isinstance(memory, CompressedMemory)
    sizes = []
    for length in (50, 500, 1500):
        read(engine, 0, prompt(engine, length - memory.length(0), seed=length))
        snapshot = memory.save_snapshot(0)
        assert snapshot.nbytes == memory.snapshot_bytes(length)
        sizes.append(snapshot.nbytes)
    assert len(set(sizes)) == 1
    whole = engine.context.state_bytes(0)
    assert memory.page_bytes(1500) + sizes[-1] < whole


@compressed
def test_loading_saving_and_dropping_change_no_other_sequence(engine: LlamaEngine) -> None:
    memory, tokens = engine.memory, prompt(engine, 300)
    alone = read(engine, 0, tokens, PIECE)
    memory.clear()
    read(engine, 1, prompt(engine, 222, seed=3), PIECE)
    saved = save(engine, 1)
    read(engine, 0, tokens[:270], PIECE)
    state = engine.context.get_state(0).view.copy()
    load(engine, 2, saved)
    memory.restore(3, 222, share=Share(2, 222))
    memory.restore(3, 222, share=Share(3, 100), pages=[p.whole() for p in saved.pages[2:]], snapshot=saved.snapshot)
    memory.drop(1)
    assert save(engine, 2).content == save(engine, 3).content == saved.content
    np.testing.assert_array_equal(engine.context.get_state(0).view, state)
    np.testing.assert_array_equal(read(engine, 0, tokens[270:], PIECE), alone)


@compressed
def test_what_was_saved_beside_few_loads_beside_many(engine: LlamaEngine) -> None:
    """llama.cpp's own bytes do not load into a context with another number of sequences."""
    tokens = prompt(engine, 300)
    read(engine, 0, tokens[:203])
    engine.memory.save_snapshot(0)
    expected = read(engine, 0, tokens[203:])
    with LlamaEngine.open(model_path("deepseek4"), replace(SETTINGS, num_sequences=1)) as small:
        read(small, 0, tokens[:203])
        saved = save(small, 0)
        load(engine, 4, saved)
    assert save(engine, 4).content == saved.content
    np.testing.assert_array_equal(read(engine, 4, tokens[203:]), expected)


@compressed
def test_whoever_saved_goes_on_like_the_one_who_loads(engine: LlamaEngine) -> None:
    """With pieces of 64 tokens, where it matters also at which cell a window begins, and beyond the end of its ring."""
    memory, tokens = engine.memory, prompt(engine, 1500)
    read(engine, 0, tokens[:1100])
    saved = save(engine, 0)
    expected = read(engine, 0, tokens[1100:])
    load(engine, 2, saved)
    np.testing.assert_array_equal(read(engine, 2, tokens[1100:]), expected)
    memory.restore(0, 1100, share=Share(0, 1100), snapshot=saved.snapshot)
    np.testing.assert_array_equal(read(engine, 0, tokens[1100:]), expected)
