"""A past that is kept in compressed rows: saved in pages, and as exact beside others as alone."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from leftoff.engine.engine import LlamaEngine
from leftoff.engine.memory.base import Share
from leftoff.engine.memory.compressed import CompressedMemory
from tests.engine.conftest import SETTINGS as USUAL
from tests.engine.scenario import Saved, cold, load, prompt, read, save
from tests.factory import model_path

LENGTH, TAIL, PIECE = 281, 30, 32
# A window has cells for a micro-batch beside it: with short ones it soon comes to the end of its ring.
SETTINGS = replace(USUAL, micro_batch_tokens=64)

sparse = pytest.mark.parametrize("engine", ["deepseek32", "deepseek4"], indirect=True)
compressed = pytest.mark.parametrize("engine", ["deepseek4"], indirect=True)


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest) -> Iterator[LlamaEngine]:
    with LlamaEngine.open(model_path(request.param), SETTINGS) as engine:
        yield engine


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

    assert len(saved.pages) == 3
    for wrong_page in range(3):
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
    for length in (50, 250, 750):
        read(engine, 0, prompt(engine, length - memory.length(0), seed=length))
        snapshot = memory.save_snapshot(0)
        assert snapshot.nbytes == memory.snapshot_bytes(length)
        sizes.append(snapshot.nbytes)
    assert len(set(sizes)) == 1
    whole = engine.context.state_bytes(0)
    assert memory.page_bytes(750) + sizes[-1] < whole


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
    memory, tokens = engine.memory, prompt(engine, 550)
    read(engine, 0, tokens[:400])
    saved = save(engine, 0)
    expected = read(engine, 0, tokens[400:])
    load(engine, 2, saved)
    np.testing.assert_array_equal(read(engine, 2, tokens[400:]), expected)
    memory.restore(0, 400, share=Share(0, 400), snapshot=saved.snapshot)
    np.testing.assert_array_equal(read(engine, 0, tokens[400:]), expected)
