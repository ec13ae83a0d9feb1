"""Errors that are not llama.cpp's, such as too little memory for numpy: no sequence holds what nobody knows of."""

import numpy as np
import pytest

from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.errors import InputError
from leftoff.engine.memory.base import Share
from tests.engine.scenario import cold, load, prompt, read, save

LENGTH, TAIL = 100, 7


def fail(*_: object, **__: object) -> None:
    raise MemoryError("no memory for an array")


@pytest.mark.parametrize("engine", ["llama", "qwen35", "gemma3", "mamba"], indirect=True)
def test_a_restore_that_fails_leaves_an_empty_sequence(engine: LlamaEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    read(engine, 0, prompt(engine, LENGTH))
    saved = save(engine, 0)
    read(engine, 1, prompt(engine, 50, 2))
    pages = [page.whole() for page in saved.pages[1:]]
    share = Share(0, saved.pages[0].end) if saved.pages else None
    with monkeypatch.context() as patch:
        patch.setattr(engine.context, "set_state", fail)
        with pytest.raises(MemoryError):
            engine.memory.restore(1, LENGTH, share=share, pages=pages, snapshot=saved.snapshot)
    assert engine.memory.length(1) == 0
    load(engine, 1, saved)
    assert save(engine, 1).content == saved.content


@pytest.mark.parametrize("engine", ["qwen35", "llama"], indirect=True)
def test_a_batch_that_fails_after_it_was_decoded_leaves_no_state_ahead_of_its_tokens(
    engine: LlamaEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = prompt(engine, LENGTH + TAIL)
    expected, _, _ = cold(engine, tokens)
    read(engine, 0, tokens[:LENGTH])
    saved = save(engine, 0)
    with monkeypatch.context() as patch:
        patch.setattr(engine.context, "wait", fail)
        with pytest.raises(MemoryError):
            engine.decode([Work(0, prompt(engine, 5, 3))])
    if engine.memory.is_whole(0):
        np.testing.assert_array_equal(read(engine, 0, tokens[LENGTH:]), expected)
    else:
        with pytest.raises(InputError, match="cancelled halfway"):
            save(engine, 0)
    load(engine, 0, saved)
    np.testing.assert_array_equal(read(engine, 0, tokens[LENGTH:]), expected)


@pytest.mark.parametrize("engine", ["qwen35"], indirect=True)
def test_a_draft_that_fails_holds_nothing(engine: LlamaEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = prompt(engine, LENGTH)
    read(engine, 0, tokens)
    with monkeypatch.context() as patch:
        patch.setattr(engine.context, "fill_batch", fail)
        with pytest.raises(MemoryError):
            engine.decode([Work(0, tokens[:3], num_drafted=2)])
    assert engine.memory.save_page(0, 0, 50).end == 50
