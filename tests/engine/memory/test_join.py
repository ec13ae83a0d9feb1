"""A state that llama.cpp is given while threads still write it: it is taken whole, or refused and given again."""

import threading
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from leftoff.engine.engine import LlamaEngine
from leftoff.engine.errors import BlobError
from leftoff.engine.memory.arena import Raw
from leftoff.engine.memory.base import PagePart
from leftoff.engine.memory.layout import Layout
from leftoff.engine.memory.staging import LockedBuffer, Staging
from tests.engine.scenario import cold, load, prompt, read, save, with_locked_memory
from tests.patience import PATIENCE_S

LENGTH = 203
TAIL = 37
AREA = 1 << 22


@pytest.fixture
def staged(engine: LlamaEngine) -> Iterator[LlamaEngine]:
    """Rows are written only when llama.cpp was given the state once."""
    with with_locked_memory(engine, AREA):
        engine.context.staging.bytes_per_booking = 1e9  # it waits for nothing
        yield engine


class Given:
    """Whether llama.cpp took each state that it was given since `clear`. Until then, no rows are written."""

    def __init__(self, staging: Staging) -> None:
        self._staging = staging
        self.answers: list[bool] = []
        self.was_given = threading.Event()

    def clear(self) -> None:
        area = self._staging.take(AREA)
        assert isinstance(area, LockedBuffer), "nobody uses a part of it"
        area.view[:] = 0  # the very rows may be there, since they were saved
        self.answers.clear()
        self.was_given.clear()


@pytest.fixture
def given(staged: LlamaEngine, monkeypatch: pytest.MonkeyPatch) -> Given:
    found = Given(staged.context.staging)
    set_state, copy_rows = staged.context.set_state, Layout.copy_rows

    def watched(seq: int, state: Raw, flags: int = 0) -> None:
        try:
            set_state(seq, state, flags)
            found.answers.append(True)
        except BlobError:
            found.answers.append(False)
            raise
        finally:
            found.was_given.set()

    def late(layout: Layout, pages: Sequence[tuple[Raw, PagePart]], blob: Raw, num_cells: int, first: int) -> None:
        assert found.was_given.wait(PATIENCE_S)
        copy_rows(layout, pages, blob, num_cells, first)

    monkeypatch.setattr(staged.context, "set_state", watched)
    monkeypatch.setattr(Layout, "copy_rows", late)
    return found


@pytest.mark.parametrize("engine", ["llama", "qwen35", "gemma3", "deepseek32"], indirect=True)
def test_a_state_whose_rows_are_late_is_refused_and_given_again(staged: LlamaEngine, given: Given) -> None:
    tokens = prompt(staged, LENGTH + TAIL)
    expected, _, _ = cold(staged, tokens)
    read(staged, 0, tokens[:LENGTH])
    saved = save(staged, 0)
    staged.memory.drop(0)
    given.clear()
    load(staged, 0, saved)
    assert given.answers[:2] == [False, True]
    assert staged.context.staging.bytes_per_booking == 5e8, "next time it waits for longer"
    np.testing.assert_array_equal(read(staged, 0, tokens[LENGTH:]), expected)


@pytest.mark.parametrize("engine", ["llama"], indirect=True)
def test_without_the_wrong_head_a_state_with_late_rows_would_be_taken(
    staged: LlamaEngine, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = prompt(staged, LENGTH + TAIL)
    expected, _, _ = cold(staged, tokens)
    read(staged, 0, tokens[:LENGTH])
    saved = save(staged, 0)
    staged.memory.drop(0)
    monkeypatch.setattr(Layout, "first_head", lambda *_: np.empty(0, np.uint8))
    given.clear()
    load(staged, 0, saved)
    assert given.answers == [True]
    assert not np.array_equal(read(staged, 0, tokens[LENGTH:]), expected)


@pytest.mark.parametrize("engine", ["llama"], indirect=True)
def test_rows_that_cannot_be_written_fail_the_load(
    staged: LlamaEngine, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(staged, 0, prompt(staged, LENGTH))
    saved = save(staged, 0)
    given.clear()

    def broken(*_: object) -> None:
        raise MemoryError("no memory for these rows")

    monkeypatch.setattr(Layout, "copy_rows", broken)
    with pytest.raises(MemoryError, match="these rows"):
        load(staged, 1, saved)
    assert True not in given.answers
