"""Architectures that few models have: their memory is of the kind that it is taken for, and comes back bit for bit."""

import numpy as np
import pytest

from leftoff.engine.engine import LlamaEngine
from leftoff.engine.errors import EngineError
from leftoff.engine.memory.base import MemoryKind, PagePart, Share
from leftoff.types import Logits, Tokens
from tests.engine.conftest import SETTINGS
from tests.engine.scenario import fork, load, prompt, read, save, with_locked_memory
from tests.factory import OTHERS, model_path
from tests.factory.others import DIFFUSION, HYBRID, INEXACT, MIXING, WINDOWED

LENGTH = 141  # past the windows, and no multiple of a page, chunk or tile
TAIL = 23
KINDS = dict.fromkeys(WINDOWED, MemoryKind.WINDOW) | dict.fromkeys(HYBRID, MemoryKind.HYBRID)


@pytest.mark.parametrize(
    ("engine", "kind"), [(name, KINDS.get(name, MemoryKind.ATTENTION)) for name in OTHERS], indirect=["engine"]
)
def test_it_is_of_its_kind_and_comes_back_bit_identically(engine: LlamaEngine, kind: MemoryKind) -> None:
    """Also through memory for transfers."""
    memory, tokens = engine.memory, prompt(engine, LENGTH + TAIL)
    assert memory.kind is kind
    expected = check_that_it_comes_back(engine, tokens)
    with with_locked_memory(engine, 1 << 20):
        np.testing.assert_array_equal(check_that_it_comes_back(engine, tokens), expected)

    changed = np.append(tokens[: LENGTH - 1], tokens[:1])
    memory.drop(2)
    read(engine, 2, changed)
    assert not np.array_equal(read(engine, 2, tokens[LENGTH:]), expected), "a state wrong by one token must show"


def check_that_it_comes_back(engine: LlamaEngine, tokens: Tokens) -> Logits:
    """Returns what is said after the tokens."""
    memory, tail = engine.memory, tokens[LENGTH:]
    memory.clear()
    read(engine, 0, tokens[:LENGTH])
    saved = save(engine, 0)
    fork(memory, 0, 1, LENGTH)
    expected = read(engine, 0, tail)
    np.testing.assert_array_equal(read(engine, 1, tail), expected)

    memory.drop(0)
    load(engine, 2, saved)
    assert save(engine, 2).content == saved.content
    np.testing.assert_array_equal(read(engine, 2, tail), expected)

    # [0 ·· shared with sequence 2 ·· 33)[33 ···· pages ···· LENGTH)
    parts = [PagePart(saved.pages[0], 33, 50), *(page.whole() for page in saved.pages[1:])]
    memory.restore(0, LENGTH, share=Share(2, 33), pages=parts, snapshot=saved.snapshot)
    np.testing.assert_array_equal(read(engine, 0, tail), expected)
    return expected


def test_a_model_that_computes_otherwise_after_loading_is_refused() -> None:
    with pytest.raises(EngineError, match="does not load the state of this model exactly"):
        LlamaEngine.open(model_path(INEXACT), SETTINGS)


def test_a_diffusion_model_is_refused() -> None:
    with pytest.raises(EngineError, match="models that generate text token by token"):
        LlamaEngine.open(model_path(DIFFUSION), SETTINGS)


def test_a_model_that_mixes_sequences_has_one() -> None:
    with LlamaEngine.open(model_path(MIXING), SETTINGS) as engine:
        assert (engine.memory.kind, engine.memory.num_sequences) == (MemoryKind.HYBRID, 1)
        tokens = prompt(engine, LENGTH + TAIL)
        read(engine, 0, tokens[:LENGTH])
        saved = save(engine, 0)
        expected = read(engine, 0, tokens[LENGTH:])
        engine.memory.drop(0)
        load(engine, 0, saved)
        np.testing.assert_array_equal(read(engine, 0, tokens[LENGTH:]), expected)
