"""Rows of a later state and a small rest are put together into the very bytes that llama.cpp would have written."""

import numpy as np
import pytest

from leftoff.engine.binding.abi import PARTIAL_ONLY
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.memory.arena import Raw
from leftoff.engine.memory.compressed_layout import CompressedLayout, copy_rows, learn_compressed_layout
from tests.engine.scenario import prompt, read

# before the first row of either kind, at and around the 128th token, and anywhere
LENGTHS = (1, 3, 4, 127, 128, 129, 256, 260, 512, 777)

pytestmark = pytest.mark.parametrize("engine", ["deepseek4"], indirect=True)


def learn(engine: LlamaEngine) -> CompressedLayout:
    read(engine, 0, prompt(engine, 16))
    layout = learn_compressed_layout(whole(engine, 0), partial(engine, 0), 16)
    assert layout is not None
    engine.memory.drop(0)
    return layout


def whole(engine: LlamaEngine, seq: int) -> Raw:
    return engine.context.get_state(seq).view.copy()


def partial(engine: LlamaEngine, seq: int) -> Raw:
    return engine.context.get_state(seq, PARTIAL_ONLY).view.copy()


def rest_of(engine: LlamaEngine, layout: CompressedLayout, seq: int) -> Raw:
    state = partial(engine, seq)
    rest = np.empty(layout.rest_bytes(state), np.uint8)
    layout.write_rest(state, seq, rest)
    return rest


def test_rows_of_a_later_state_and_the_rest_are_the_whole_state(engine: LlamaEngine) -> None:
    layout, tokens = learn(engine), prompt(engine, 900)
    states, rests = {}, {}
    for start, length in zip((0, *LENGTHS), LENGTHS, strict=False):
        read(engine, 0, tokens[start:length])
        states[length], rests[length] = whole(engine, 0), rest_of(engine, layout, 0)
    read(engine, 0, tokens[LENGTHS[-1] :])
    later = layout.rows(whole(engine, 0), 0)
    for length in LENGTHS:
        joined = np.full(layout.whole_bytes(length, rests[length]), 255, np.uint8)
        copy_rows(layout.write_whole(joined, length, rests[length]), later, 0, length)
        np.testing.assert_array_equal(joined, states[length])
    assert rests[777].nbytes == rests[128].nbytes, "a rest does not grow with the prompt"


def test_pages_may_begin_and_end_anywhere(engine: LlamaEngine) -> None:
    layout = learn(engine)
    read(engine, 0, prompt(engine, 700))
    state = whole(engine, 0)
    rows, rest = layout.rows(state, 0), rest_of(engine, layout, 0)
    joined = np.zeros(state.nbytes, np.uint8)
    targets = layout.write_whole(joined, 700, rest)
    for start, end in ((0, 1), (1, 3), (3, 126), (126, 131), (131, 400), (400, 401), (401, 700)):
        page = np.empty(layout.page_bytes(end - start), np.uint8)
        layout.cut_out(rows, start, end, page)
        copy_rows(targets, layout.page_rows(page, start, end), start, end)
    np.testing.assert_array_equal(joined, state)


def test_a_rest_is_the_same_from_any_sequence_and_comes_back(engine: LlamaEngine) -> None:
    layout, tokens = learn(engine), prompt(engine, 150)
    rests = []
    for seq in (0, 3):
        read(engine, seq, tokens)
        rests.append(rest_of(engine, layout, seq))
    np.testing.assert_array_equal(rests[0], rests[1])
    state = np.empty(layout.partial_bytes(rests[1]), np.uint8)
    layout.write_partial(rests[1], state)
    np.testing.assert_array_equal(state, partial(engine, 0))


def test_bytes_that_are_laid_out_otherwise_are_not_understood(engine: LlamaEngine) -> None:
    layout = learn(engine)
    read(engine, 0, prompt(engine, 16))
    state, rest = whole(engine, 0), partial(engine, 0)
    caches = state.nbytes - sum(cache.nbytes(16 // cache.ratio) for cache in layout.caches)
    caches -= rest.nbytes - 20 - layout._window_bytes(16)  # the tokens that are not yet in a row come last
    for place in (20, 24, 28, caches, caches + 4, caches + 8, caches + 32):  # streams, cells, version, rows, row counts
        other = state.copy()
        other[place] += 1
        assert learn_compressed_layout(other, rest, 16) is None, place
    assert learn_compressed_layout(state, rest[:-1], 16) is None
    assert learn_compressed_layout(state[:-1], rest, 16) is None
    assert learn_compressed_layout(state, rest, 15) is None
    assert learn_compressed_layout(state[:50], rest[:50], 16) is None
