"""A model that may sleep holds the texts of its tokens apart. Its weights are loaded without: they compute the same."""

import logging
from pathlib import Path

import numpy as np
import pytest

from leftoff.engine.engine import LlamaEngine
from leftoff.engine.model import Model
from leftoff.types import Logits
from tests.engine.scenario import prompt, read
from tests.factory import ARCHITECTURES, Scale, model_path
from tests.factory.architectures import RECIPES
from tests.factory.cache import metadata_of
from tests.factory.gguf import write_model


def computed(engine: LlamaEngine) -> Logits:
    engine.memory.clear()
    return read(engine, 0, prompt(engine, 100))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_it_computes_what_one_computes_that_stays(architecture: str) -> None:
    with LlamaEngine.open(model_path(architecture)) as engine:
        expected = computed(engine)
    with LlamaEngine(Model(model_path(architecture), may_sleep=True)) as engine:
        words = engine.model.vocabulary
        assert computed(engine).tobytes() == expected.tobytes()
        engine.sleep()
        assert words.text(words.tokenize("hello")) == "hello"
        engine.wake()
        assert computed(engine).tobytes() == expected.tobytes()


def test_nothing_is_said_of_texts_that_are_not_loaded_twice(caplog: pytest.LogCaptureFixture) -> None:
    model = Model(model_path("llama"), may_sleep=True)
    with caplog.at_level(logging.WARNING):
        model.sleep()
        model.wake()
    model.close()
    assert caplog.messages == []


def test_a_file_that_counts_its_tokens_otherwise_is_loaded_as_it_is(tmp_path: Path) -> None:
    """llama.cpp tells some models apart by that number."""
    path = tmp_path / "padded.gguf"
    metadata = metadata_of(RECIPES["llama"], Scale()) | {"llama.vocab_size": 12345}
    write_model(path, metadata, lambda tensor: np.zeros((tensor.rows, tensor.columns), np.float32), ())
    model = Model(path, may_sleep=True)
    try:
        assert model.vocabulary.size != 12345
        model.sleep()
        assert model.wake()
    finally:
        model.close()
