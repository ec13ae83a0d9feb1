"""A restore that cannot be right is refused; one that fails leaves its sequence empty. No other sequence is touched."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from leftoff.engine.engine import LlamaEngine
from leftoff.engine.errors import BlobError, EngineError, InputError, NoRoomError
from leftoff.engine.memory.arena import view_of
from leftoff.engine.memory.base import Bytes, Page, PagePart, Share, Snapshot, WindowPage
from tests.engine.conftest import SETTINGS
from tests.engine.scenario import Saved, fork, load, prompt, read, save, standing
from tests.factory import model_path

LENGTH = 100
EVERY = ["llama", "qwen35", "gemma3", "mamba2", "deepseek4"]
with_any_memory = pytest.mark.parametrize("engine", EVERY, indirect=True)
with_pages = pytest.mark.parametrize("engine", ["llama", "qwen35", "gemma3"], indirect=True)
with_state = pytest.mark.parametrize("engine", EVERY[1:], indirect=True)


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest) -> Iterator[LlamaEngine]:
    """With few cells: a test fills them all."""
    with LlamaEngine.open(model_path(request.param), replace(SETTINGS, num_cells=1024)) as engine:
        yield engine


class Foreign:
    """Bytes that this engine did not save."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


def fill(engine: LlamaEngine) -> Saved:
    """Every sequence holds something; the last one is what the tests restore into."""
    for seq in range(engine.memory.num_sequences):
        read(engine, seq, prompt(engine, LENGTH - seq, seed=seq))
    return save(engine, 0, page_tokens=40)


def target(engine: LlamaEngine) -> int:
    return engine.memory.num_sequences - 1


@contextmanager
def refused(engine: LlamaEngine, error: type[EngineError], message: str) -> Iterator[None]:
    """Nothing changes at all: it is refused before anything is touched."""
    before = standing(engine)
    with pytest.raises(error, match=message):
        yield
    assert standing(engine) == before


@contextmanager
def emptied(engine: LlamaEngine, error: type[EngineError], message: str) -> Iterator[None]:
    """It fails on the way: the sequence is empty, whole and of use; all others are as they were."""
    memory, seq = engine.memory, target(engine)
    before = standing(engine)[:seq]
    with pytest.raises(error, match=message):
        yield
    assert memory.length(seq) == 0
    assert memory.is_whole(seq)
    assert standing(engine)[:seq] == before
    if memory.free_cells >= 5:
        read(engine, seq, prompt(engine, 5))
        assert memory.length(seq) == 5


@with_any_memory
def test_what_does_not_fit_together_is_refused(engine: LlamaEngine) -> None:
    saved, memory, seq = fill(engine), engine.memory, target(engine)
    pages = [page.whole() for page in saved.pages]
    for length in (LENGTH - 1, LENGTH + 1, 10**9):
        with refused(engine, InputError, r"not covered|snapshot stands at"):
            memory.restore(seq, length, pages=pages, snapshot=saved.snapshot)
    for length in (-1, -LENGTH):
        with refused(engine, InputError, f"no sequence has {length} tokens"):
            memory.restore(seq, length)


@with_any_memory
def test_a_sequence_that_does_not_exist_is_refused(engine: LlamaEngine) -> None:
    saved, memory, seq = fill(engine), engine.memory, target(engine)
    for wrong in (-1, memory.num_sequences, 99):
        with refused(engine, InputError, f"sequence {wrong} does not exist"):
            load(engine, wrong, saved)
        with refused(engine, InputError, f"sequence {wrong} does not exist"):
            fork(memory, wrong, seq, 10)
        with refused(engine, InputError, f"sequence {wrong} does not exist"):
            fork(memory, seq, wrong, memory.length(seq))


@with_any_memory
def test_a_share_longer_than_its_source_is_refused(engine: LlamaEngine) -> None:
    fill(engine)
    memory, seq = engine.memory, target(engine)
    for length in (memory.length(0) + 1, 10**9):
        with refused(engine, InputError, f"sequence 0 holds {memory.length(0)} tokens, not {length}"):
            memory.restore(seq, length, share=Share(0, length))
        with refused(engine, InputError, f"holds {memory.length(0)} tokens, not {length}"):
            fork(memory, 0, seq, length)
    with refused(engine, InputError, "tokens, not -1"):
        memory.restore(seq, 5, share=Share(0, -1))


@with_pages
def test_pages_that_do_not_follow_on_each_other_are_refused(engine: LlamaEngine) -> None:
    saved, memory, seq = fill(engine), engine.memory, target(engine)
    first, second, third = saved.pages
    wrong = [
        [first.whole(), third.whole()],  # a gap
        [first.whole(), PagePart(second, 41, 80), third.whole()],
        [first.whole(), first.whole(), second.whole(), third.whole()],  # twice
        [second.whole(), first.whole(), third.whole()],  # out of order
        [PagePart(first, 0, 41), PagePart(second, 41, 80), third.whole()],  # more than the page has
        [first.whole(), PagePart(second, 40, 40), second.whole(), third.whole()],  # nothing
        [first.whole(), PagePart(second, 60, 40), third.whole()],  # backwards
        [PagePart(first, -5, 40), second.whole(), third.whole()],
    ]
    for parts in wrong:
        with refused(engine, InputError, "does not follow on position"):
            memory.restore(seq, LENGTH, pages=parts, snapshot=saved.snapshot)
    with refused(engine, InputError, "does not follow on position 20"):
        pages = [page.whole() for page in saved.pages]
        memory.restore(seq, LENGTH, share=Share(0, 20), pages=pages, snapshot=saved.snapshot)


@with_pages
def test_a_page_of_the_wrong_size_is_refused(engine: LlamaEngine) -> None:
    saved, memory, seq = fill(engine), engine.memory, target(engine)
    for page in (replace(saved.pages[0], end=39), replace(saved.pages[0], end=LENGTH)):
        with refused(engine, BlobError, f"a page of {page.end} tokens cannot have {page.nbytes} bytes"):
            memory.restore(seq, page.end, pages=[page.whole()], snapshot=moved(saved.snapshot, page.end))


@with_pages
def test_pages_that_are_not_this_engines_own_leave_the_sequence_empty(engine: LlamaEngine) -> None:
    saved, memory, seq = fill(engine), engine.memory, target(engine)
    pages = [replace(page, data=Foreign(page.nbytes)).whole() for page in saved.pages]
    with emptied(engine, InputError, "Foreign was not saved by this engine"):
        memory.restore(seq, LENGTH, pages=pages, snapshot=saved.snapshot)


@with_pages
def test_pages_that_find_no_room_leave_the_sequence_empty(engine: LlamaEngine) -> None:
    saved, memory, seq = fill(engine), engine.memory, target(engine)
    while memory.free_cells:
        read(engine, 1, prompt(engine, min(2048, memory.free_cells)), chunk=2048)
    with emptied(engine, NoRoomError, f"{LENGTH} tokens do not fit in the {memory.length(seq)} free cells"):
        load(engine, seq, saved)


@with_state
def test_a_snapshot_that_cannot_be_loaded_leaves_the_sequence_empty(engine: LlamaEngine) -> None:
    saved, memory, seq = fill(engine), engine.memory, target(engine)
    pages = [page.whole() for page in saved.pages]
    assert saved.snapshot is not None
    *window, last = saved.snapshot.window or [None]
    content = view_of(last.data if last is not None else saved.snapshot.data)
    cut_short = engine.context.arena.take(content.nbytes - 8)
    cut_short.view[:] = content[:-8]
    nonsense = engine.context.arena.take(content.nbytes)
    nonsense.view[:] = 0x5A
    bad: list[tuple[Bytes, type[EngineError], str]] = [
        (Foreign(content.nbytes), InputError, "Foreign was not saved"),
        (cut_short, BlobError, "window page" if last is not None else "bytes of state"),
        *([(nonsense, BlobError, "bytes of state")] if last is None else []),
    ]
    for data, error, message in bad:
        with emptied(engine, error, message):
            snapshot = Snapshot(LENGTH, data)
            if last is not None:
                damaged = WindowPage(last.start, last.end, data)
                snapshot = Snapshot(LENGTH, saved.snapshot.data, (*window, damaged))
            memory.restore(seq, LENGTH, pages=pages, snapshot=snapshot)
        load(engine, seq, saved)
        assert save(engine, seq, page_tokens=40).content == saved.content


@with_state
def test_a_snapshot_at_another_position_or_none_is_refused(engine: LlamaEngine) -> None:
    saved, memory, seq = fill(engine), engine.memory, target(engine)
    pages = [page.whole() for page in saved.pages]
    with refused(engine, InputError, f"the snapshot stands at 99, not at {LENGTH}"):
        memory.restore(seq, LENGTH, pages=pages, snapshot=moved(saved.snapshot, 99))
    with refused(engine, InputError, f"memory needs a snapshot at {LENGTH}"):
        memory.restore(seq, LENGTH, pages=pages)


@pytest.mark.parametrize("engine", ["mamba2"], indirect=True)
def test_memory_without_pages_takes_none(engine: LlamaEngine) -> None:
    saved, memory, seq = fill(engine), engine.memory, target(engine)
    with emptied(engine, InputError, "has no pages"):
        memory.restore(seq, LENGTH, pages=[Page(0, LENGTH, Foreign(0)).whole()], snapshot=saved.snapshot)
    with pytest.raises(InputError, match="has no pages"):
        memory.save_page(0, 0, LENGTH)


@with_any_memory
def test_what_is_not_there_is_not_saved(engine: LlamaEngine) -> None:
    saved, memory = fill(engine), engine.memory
    if memory.kind.has_pages:
        for start, end in ((0, LENGTH + 1), (-1, 5), (5, 5), (6, 5), (LENGTH, LENGTH + 1)):
            with pytest.raises(InputError, match="there is no page"):
                memory.save_page(0, start, end)
    if not memory.kind.has_snapshots:
        with pytest.raises(InputError, match="no snapshots"):
            memory.save_snapshot(0)
    for wrong in (-1, memory.num_sequences, 99):
        for ask in (memory.length, memory.is_whole, memory.drop, lambda seq: memory.can_cut(seq, 1)):
            with pytest.raises(InputError, match=f"sequence {wrong} does not exist"):
                ask(wrong)
        if memory.kind.has_snapshots:
            with pytest.raises(InputError, match=f"sequence {wrong} does not exist"):
                memory.save_snapshot(wrong)
    assert save(engine, 0, page_tokens=40).content == saved.content
    assert np.isfinite(read(engine, 0, prompt(engine, 5))).all()


def moved(snapshot: Snapshot | None, position: int) -> Snapshot | None:
    return snapshot and Snapshot(position, snapshot.data)
