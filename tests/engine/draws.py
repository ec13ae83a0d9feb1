"""Small moves that the sampler tests are told in: logits, draws, and what is left to choose from."""

import numpy as np

from leftoff.engine.engine import LlamaEngine
from leftoff.engine.sampler import Sampler
from leftoff.sampling import Sampling
from leftoff.types import Logits

HOT = 1e4  # so hot that all tokens that are left are chosen about equally often


def few_logits(engine: LlamaEngine, values: list[float] | Logits) -> Logits:
    """Only the first tokens can be chosen."""
    logits = np.full(engine.model.vocabulary.size, -np.inf, np.float32)
    logits[: len(values)] = values
    return logits


def random_logits(engine: LlamaEngine, seed: int, num_tokens: int = 12) -> Logits:
    return few_logits(engine, np.random.default_rng(seed).normal(0, 2, num_tokens).astype(np.float32))


def draw(engine: LlamaEngine, sampling: Sampling, logits: Logits, count: int = 1) -> list[int]:
    sampler = Sampler(engine.model, sampling)
    return [sampler.sample_from(logits) for _ in range(count)]


def chances(logits: Logits) -> Logits:
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum(), np.float32)
