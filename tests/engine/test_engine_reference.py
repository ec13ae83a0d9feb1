"""A real model gives the logits that the people who made it give."""

from pathlib import Path

import numpy as np
import pytest

from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine, Work

MODELS = Path(__file__).parents[2].parent / "shared" / "data" / "models"

pytestmark = pytest.mark.skipif(not MODELS.is_dir(), reason="needs the reference files beside the checkout")


def test_rwkv7_gives_the_logits_of_its_authors() -> None:
    expected = np.fromfile(MODELS / "rwkv7-tiny.expected-logits.f32", np.float32)
    tokens = np.frombuffer(b'"in', np.uint8).astype(np.int32)  # its vocabulary is the bytes
    settings = ContextSettings(num_cells=256, num_sequences=2, threads=1)
    with LlamaEngine.open(MODELS / "rwkv7-tiny.gguf", settings) as engine:
        (row,) = engine.decode([Work(0, tokens)])
        at_once = engine.logits(row).copy()
        for token in tokens:
            (row,) = engine.decode([Work(1, np.array([token], np.int32))])
        one_by_one = engine.logits(row).copy()
        (row,) = engine.decode([Work(0, tokens)])
        later = engine.logits(row).copy()
    assert at_once.shape == expected.shape == (256,)
    np.testing.assert_allclose(at_once, expected, atol=1e-4)
    np.testing.assert_allclose(one_by_one, expected, atol=1e-4)
    assert np.abs(later - expected).max() > 1e-3, "after another past they differ by more"
