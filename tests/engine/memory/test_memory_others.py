"""Architectures that few models have: their memory is of the kind that it is taken for, and comes back bit for bit."""

import numpy as np
import pytest

from leftoff.engine.engine import LlamaEngine
from leftoff.engine.errors import EngineError
from leftoff.engine.memory.base import MemoryKind
from tests.engine.conftest import SETTINGS
from tests.engine.scenario import fork, load, prompt, read, save
from tests.factory import OTHERS, model_path
from tests.factory.others import HYBRID, INEXACT, OPAQUE, WINDOWED

LENGTH = 203
TAIL = 37


def kind_of(name: str) -> MemoryKind:
    kinds = {MemoryKind.WINDOW: WINDOWED, MemoryKind.HYBRID: HYBRID, MemoryKind.OPAQUE: OPAQUE}
    return next((kind for kind, names in kinds.items() if name in names), MemoryKind.ATTENTION)


@pytest.mark.parametrize(("engine", "kind"), [(name, kind_of(name)) for name in OTHERS], indirect=["engine"])
def test_memory_is_of_its_kind_and_comes_back_bit_identically(engine: LlamaEngine, kind: MemoryKind) -> None:
    memory, tokens = engine.memory, prompt(engine, LENGTH + TAIL)
    assert memory.kind is kind
    other, is_alone = memory.num_sequences - 1, memory.num_sequences == 1
    assert is_alone == (kind is MemoryKind.OPAQUE)

    read(engine, 0, tokens[:LENGTH])
    saved = save(engine, 0)
    if not is_alone:
        fork(memory, 0, 1, LENGTH)
    expected = read(engine, 0, tokens[LENGTH:])
    if not is_alone:
        np.testing.assert_array_equal(read(engine, 1, tokens[LENGTH:]), expected)

    memory.drop(0)
    load(engine, other, saved)
    assert save(engine, other).content == saved.content
    np.testing.assert_array_equal(read(engine, other, tokens[LENGTH:]), expected)

    changed = tokens.copy()
    changed[LENGTH - 1] = tokens[0]
    memory.drop(other)
    read(engine, other, changed[:LENGTH])
    assert not np.array_equal(read(engine, other, changed[LENGTH:]), expected), "a state wrong by one token must show"


def test_a_model_that_computes_otherwise_after_loading_is_refused() -> None:
    with pytest.raises(EngineError, match="does not load the state of this model exactly"):
        LlamaEngine.open(model_path(INEXACT), SETTINGS)
