"""Random models of every kind: real files whose logits depend on what was read long before."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from lab.gpu.random_model import quantized, write_random_model
from lab.gpu.shapes import KINDS, Shape, shape
from leftoff.engine.batch import BatchPart
from leftoff.engine.context import Context, ContextSettings
from leftoff.engine.model import Model
from leftoff.types import Logits, Tokens
from tests.factory import small_vocabulary

_SETTINGS = ContextSettings(num_cells=512, num_sequences=1, batch_tokens=256, micro_batch_tokens=256)


@dataclass(frozen=True)
class Runner:
    path: Path
    model: Model
    context: Context

    def read(self, tokens: Tokens) -> Logits:
        self.context.clear()
        (row,) = self.context.fill_batch(BatchPart(0, tokens, 0))
        self.context.decode()
        return self.context.logits(row).copy()


@pytest.fixture(scope="module", params=KINDS)
def runner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    path = tmp_path_factory.mktemp("models") / "random.gguf"
    write_random_model(path, shape(str(request.param), "small"))
    model = Model(str(path))
    context = Context(model, _SETTINGS)
    yield Runner(path, model, context)
    context.close()
    model.close()


def test_logits_depend_on_what_was_read_long_before(runner: Runner) -> None:
    tokens = np.random.default_rng(0).integers(1000, runner.model.vocabulary.size, 200).astype(np.int32)
    other = tokens.copy()
    other[10] += 1
    before, after = runner.read(tokens), runner.read(other)
    assert np.abs(before - after).max() > 0.02
    assert int(before.argmax()) in small_vocabulary().words
    assert np.array_equal(before, runner.read(tokens))


def test_matrices_are_quantized(runner: Runner) -> None:
    num_weights = runner.model.library.dll.llama_model_n_params(runner.model.handle)
    assert runner.path.stat().st_size < 1.3 * num_weights


def test_large_tensors_repeat_a_pool_and_no_row_twice(tmp_path: Path) -> None:
    path = tmp_path / "wide.gguf"
    small = shape("dense", "small")
    wide = Shape(small.recipe, 20000, "A", lambda layers: {**small.sizes(layers), "embedding_length": 4096})
    write_random_model(path, wide)
    model = Model(str(path))
    assert model.vocabulary.size == 20000
    context = Context(model, _SETTINGS)
    runner = Runner(path, model, context)
    # a pool of 2 ** 21 blocks would begin anew after 16,384 rows of 128 blocks
    first, later = (runner.read(np.array([token], np.int32)) for token in (3000, 3000 + 16384))
    assert np.abs(first - later).max() > 0.5
    context.close()
    model.close()


def test_quantized_values_are_near_the_given_ones() -> None:
    values = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)
    values[0] = 0
    blocks = quantized(values).view(np.dtype([("scale", "<f2"), ("values", "i1", 32)]))
    back = (blocks["scale"].astype(np.float32)[:, None] * blocks["values"]).reshape(values.shape)
    assert np.abs(back - values).max() <= np.abs(values).max() / 200
    assert not back[0].any()
