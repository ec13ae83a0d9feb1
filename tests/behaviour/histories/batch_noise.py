"""What it does to logits that tokens are computed together and not one by one: nobody can help that."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.sampler import log_probabilities

_TOP = 5  # likeliest tokens, as the histories compare
_TOGETHER = 8
_SETTINGS = ContextSettings(num_cells=1024, num_sequences=1, threads=1, batch_tokens=32, micro_batch_tokens=32)


def batch_noise(model: Path, num_prompts: int, seed: int = 0) -> Iterator[float]:
    """Differences of a log-probability between up to eight tokens decoded together and one by one."""
    rng = np.random.default_rng(seed)
    with LlamaEngine.open(model, _SETTINGS) as engine:
        for _ in range(num_prompts):
            tokens = rng.integers(0, min(8000, engine.model.vocabulary.size), 24 + rng.integers(200)).astype(np.int32)
            alone = _log_probabilities(engine, tokens, 1)
            for together in (3, 5, _TOGETHER):
                for one, other in zip(alone, _log_probabilities(engine, tokens, together), strict=True):
                    top = np.argsort(one)[-_TOP:]
                    yield float(np.abs(one[top] - other[top]).max())


def _log_probabilities(engine: LlamaEngine, tokens: np.ndarray, together: int) -> list[np.ndarray]:
    """Those after each of the last tokens, so many of which are decoded in one batch."""
    engine.memory.drop(0)
    before = tokens[:-_TOGETHER]
    for start in range(0, before.size, 16):
        engine.decode([Work(0, before[start : start + 16])])
    found = []
    for start in range(before.size, tokens.size, together):
        piece = tokens[start : start + together]
        (row,) = engine.decode([Work(0, piece, all_logits=True)])
        found += [log_probabilities(engine.logits(row - piece.size + 1 + index)) for index in range(piece.size)]
    return found
