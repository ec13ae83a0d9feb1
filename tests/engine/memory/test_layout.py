"""Pages are joined and sorted into the very bytes that llama.cpp would have written."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leftoff.engine.binding.abi import PARTIAL_ONLY
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.memory.arena import Raw, view_of
from leftoff.engine.memory.base import Page, PagePart
from leftoff.engine.memory.layout import HEADER_BYTES, Layout, learn_layout
from tests.engine.conftest import SETTINGS
from tests.engine.scenario import prompt, read
from tests.factory import model_path

LENGTH = 60
with_pages = pytest.mark.parametrize("engine", ["llama", "qwen35", "gemma3", "deepseek2", "deepseek32"], indirect=True)


@dataclass(frozen=True)
class Example:
    """The state of one sequence: llama.cpp's bytes of its attention, their layout, and the same as one page."""

    attention: Raw
    layout: Layout
    page: Page


def attention_section(engine: LlamaEngine, seq: int) -> Raw:
    whole = engine.context.get_state(seq).view
    rest = engine.context.get_state(seq, PARTIAL_ONLY).view
    return whole if np.array_equal(whole, rest) else whole[: whole.nbytes - rest.nbytes + HEADER_BYTES]


def learn(engine: LlamaEngine, seq: int) -> Example:
    length = engine.memory.length(seq)
    attention = attention_section(engine, seq)
    layout = learn_layout(attention, length, attention.nbytes)
    assert layout is not None
    return Example(attention, layout, engine.memory.save_page(seq, 0, length))


@pytest.fixture(scope="module", params=["llama", "qwen35", "gemma3", "deepseek32"])
def example(request: pytest.FixtureRequest) -> Iterator[Example]:
    with LlamaEngine.open(model_path(request.param), SETTINGS) as engine:
        read(engine, 0, prompt(engine, LENGTH))
        yield learn(engine, 0)


@with_pages
def test_a_layout_accounts_for_every_byte(engine: LlamaEngine) -> None:
    for length in (1, 2, 64, 203):
        engine.memory.drop(0)
        read(engine, 0, prompt(engine, length))
        example = learn(engine, 0)
        layout = example.layout
        assert layout.section_end(length) == example.attention.nbytes == example.page.nbytes
        for num_cells in (0, 1, length):
            sections = sum(section.nbytes(num_cells) for section in layout.sections)
            assert layout.section_end(num_cells) == len(layout.header) + sections
        assert layout.positions(example.attention, length).tolist() == [*range(length)]
        rows = [run.rows(example.attention, length) for run in layout.runs]
        assert sum(matrix.nbytes for matrix in rows) == length * layout.bytes_per_token
        framed = example.attention.copy()
        for run in layout.runs:
            run.rows(framed, length)[:] = 0
        layout.write_frame(framed, length)
        for run, source in zip(layout.runs, rows, strict=True):
            run.rows(framed, length)[:] = source
        np.testing.assert_array_equal(framed, example.attention)


@with_pages
def test_a_page_is_what_llama_writes_but_for_the_sequence_it_names(engine: LlamaEngine) -> None:
    pages = []
    for seq in (0, 3):
        read(engine, seq, prompt(engine, LENGTH))
        example = learn(engine, seq)
        page, layout = view_of(example.page.data), example.layout
        assert layout.positions(page, LENGTH).tolist() == [*range(LENGTH)]
        found, written = page.copy(), example.attention.copy()
        for state in (found, written):
            layout.forget_sequence(state, LENGTH)
        np.testing.assert_array_equal(found[HEADER_BYTES:], written[HEADER_BYTES:])
        pages.append(page.tobytes())
        engine.memory.drop(seq)
    assert pages[0] == pages[1]


@settings(deadline=None)
@given(cuts=st.sets(st.integers(1, LENGTH - 1), max_size=8))
def test_parts_joined_are_the_whole(example: Example, cuts: set[int]) -> None:
    ends = [*sorted(cuts), LENGTH]
    parts = [PagePart(example.page, start, end) for start, end in zip([0, *ends], ends, strict=False)]
    np.testing.assert_array_equal(joined(example.layout, parts), view_of(example.page.data))


@settings(deadline=None)
@given(cuts=st.lists(st.integers(0, LENGTH), min_size=2, max_size=2, unique=True))
def test_a_part_of_a_page_is_a_page(example: Example, cuts: list[int]) -> None:
    start, end = sorted(cuts)
    part = joined(example.layout, [PagePart(example.page, start, end)])
    assert example.layout.positions(part, end - start).tolist() == [*range(start, end)]
    assert part.nbytes == example.layout.section_end(end - start)


@settings(deadline=None)
@given(order=st.permutations(range(LENGTH)))
def test_shuffled_cells_are_sorted_by_position(example: Example, order: list[int]) -> None:
    layout = example.layout
    shuffled = joined(layout, [PagePart(example.page, position, position + 1) for position in order])
    assert layout.positions(shuffled, LENGTH).tolist() == order
    layout.sort(shuffled, LENGTH)
    np.testing.assert_array_equal(shuffled, view_of(example.page.data))


@pytest.mark.parametrize("engine", ["llama"], indirect=True)
def test_bytes_that_are_laid_out_otherwise_are_not_understood(engine: LlamaEngine) -> None:
    read(engine, 0, prompt(engine, 16))
    blob = attention_section(engine, 0)
    layout = learn_layout(blob, 16, blob.nbytes)
    assert layout is not None
    (section,) = layout.sections
    shape = HEADER_BYTES + 8 + 16 * section.cell_bytes
    row_bytes = shape + len(section.shape) + 4
    for place in (8, 12, 16, 20, 16 + section.cell_bytes, shape, row_bytes):  # streams, cells, cells' entries, v_trans
        other = blob.copy()
        other[place] += 1
        assert learn_layout(other, 16, other.nbytes) is None, place
    assert learn_layout(blob, 15, blob.nbytes) is None
    assert learn_layout(blob, 16, blob.nbytes - 1) is None
    assert learn_layout(np.append(blob, np.zeros(1, np.uint8)), 16, blob.nbytes + 1) is None
    assert learn_layout(np.random.default_rng(1).integers(0, 256, 5000).astype(np.uint8), 16, 5000) is None


def joined(layout: Layout, parts: list[PagePart]) -> Raw:
    num_cells = sum(part.num_tokens for part in parts)
    blob = np.zeros(layout.section_end(num_cells), np.uint8)
    layout.write_frame(blob, num_cells)
    pages = [(view_of(part.page.data), part) for part in parts]
    layout.copy_entries(pages, blob, num_cells)
    for some in (pages[:1], pages[1:]):
        if some:
            layout.copy_rows(some, blob, num_cells, 0 if some[0] is pages[0] else parts[0].num_tokens)
    return blob
