"""A model whose keys are turned by other factors in a long context: states of a short one are not its states."""

from pathlib import Path

import numpy as np
import pytest

from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.memory.arena import Raw, view_of
from tests.engine.scenario import prompt, read
from tests.factory import Scale, small_vocabulary
from tests.factory.architectures import Recipe
from tests.factory.cache import metadata_of
from tests.factory.gguf import Tensor, write_model
from tests.factory.parts import Metadata, attention, body
from tests.factory.weights import Weights

ORIGINAL = 1024


def long_rope(scale: Scale) -> Metadata:
    scaling: Metadata = {
        "rope.scaling.type": "longrope",
        "rope.scaling.original_context_length": ORIGINAL,
        "rope.scaling.attn_factor": 1.0,
    }
    return body(scale, layers=4) | attention(scale) | scaling


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("longrope") / "longrope.gguf"
    weights = Weights(small_vocabulary().words, 1.0)

    def fill(tensor: Tensor) -> np.ndarray:
        if "rope_factors" not in tensor.name:
            return weights.fill(tensor)
        most = 40.0 if "long" in tensor.name else 1.0
        shape = (tensor.rows, tensor.columns)
        return np.geomspace(1.0, most, tensor.rows * tensor.columns).astype(np.float32).reshape(shape)

    write_model(path, metadata_of(Recipe("llama", long_rope), Scale()), fill)
    return path


def page_and_fingerprint(path: Path, num_cells: int) -> tuple[Raw, str]:
    with LlamaEngine.open(path, ContextSettings(num_cells=num_cells, num_sequences=1, threads=1)) as engine:
        read(engine, 0, prompt(engine, 64))
        return view_of(engine.memory.save_page(0, 0, 64).data).copy(), engine.memory.fingerprint


def test_a_long_context_has_a_fingerprint_of_its_own(path: Path) -> None:
    (short, short_name), (also_short, also_name), (long, long_name) = (
        page_and_fingerprint(path, num_cells) for num_cells in (512, ORIGINAL, 4 * ORIGINAL)
    )
    assert short_name == also_name
    np.testing.assert_array_equal(short, also_short)
    assert long_name != short_name
    assert not np.array_equal(long, short), "else there would be no need"
