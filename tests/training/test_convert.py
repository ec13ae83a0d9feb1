"""Parameters of training, written as GGUF, make the same model in leftoff's engine."""

from pathlib import Path

import numpy as np
import pytest

from leftoff.engine.model import Model
from tests.training.engine import engine_logits
from tests.training.reference import logits, random_parameters
from training.convert import NAME, convert
from training.gguf import quantised
from training.shape import MICRO
from training.tokens import MARKS, SPECIAL, TURN_END, VOCABULARY

# Longer than the convolution and than a chunk of the delta rule.
TOKENS = [int(token) for token in np.random.default_rng(1).integers(0, 8000, 90)]


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "micro.gguf"
    convert(random_parameters(MICRO), MICRO, path, quantise=False)
    return path


def test_the_engine_computes_what_was_trained(exact: Path) -> None:
    expected = logits(random_parameters(MICRO), MICRO, TOKENS)[-1]
    found = engine_logits(exact, TOKENS)
    assert np.abs(found - expected).max() < 2e-3 * np.abs(expected).max()


def test_the_comparison_would_show_other_parameters(exact: Path) -> None:
    expected = logits(random_parameters(MICRO, seed=1), MICRO, TOKENS)[-1]
    assert np.abs(engine_logits(exact, TOKENS) - expected).max() > 0.5 * np.abs(expected).max()


def test_quantising_changes_little(tmp_path: Path) -> None:
    path = tmp_path / "micro.gguf"
    convert(random_parameters(MICRO), MICRO, path)
    expected = logits(random_parameters(MICRO), MICRO, TOKENS)[-1]
    assert np.corrcoef(engine_logits(path, TOKENS), expected)[0, 1] > 0.99


def test_q8_0_keeps_values_to_a_127th_of_the_largest() -> None:
    values = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    values[0, :32] = 0
    blocks = np.frombuffer(quantised(values), np.int8).reshape(-1, 34)
    scales = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    restored = (blocks[:, 2:] * scales).reshape(values.shape)
    assert np.abs(restored - values).max() <= np.abs(values).max() / 127
    assert not restored[0, :32].any()


def test_the_file_says_what_it_is(exact: Path) -> None:
    model = Model(exact)
    try:
        assert (model.architecture, model.name, model.is_hybrid) == ("qwen35", NAME, True)
        assert model.vocabulary.size == VOCABULARY
        assert model.vocabulary.eos == TURN_END
        assert "<|im_start|>" in (model.chat_template() or "")
        names = [model.vocabulary.piece(token).decode() for token in range(VOCABULARY - 9, VOCABULARY)]
        assert names == [*SPECIAL, *MARKS]
    finally:
        model.close()
