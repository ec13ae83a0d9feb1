"""Log-probabilities of prompts: over HTTP as lm_eval asks for them, in a session, and by the engine itself."""

from collections.abc import Iterator

import httpx
import numpy as np
import pytest

from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.sampler import log_probabilities
from leftoff.hub.reference import default_model
from leftoff.session import Session
from tests.patience import PATIENCE_S

CONTEXT = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\nThe capital of France is"
ANSWERS = (" Paris.", " Rome.", " a city that I do not know", " a")
CONTEXT_SETTINGS = ContextSettings(num_cells=1024, num_sequences=1, threads=1, micro_batch_tokens=64)
ROUNDING = 0.02  # pieces are cut, and batches made, differently


@pytest.fixture(scope="module")
def http(embedded_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=embedded_url, timeout=PATIENCE_S) as http:
        yield http


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(context=CONTEXT_SETTINGS) as session:
        yield session


def tokens_of(http: httpx.Client, text: str) -> list[int]:
    tokens: list[int] = http.post("/tokenize", json={"prompt": text, "add_special_tokens": False}).json()["tokens"]
    return tokens


def difference(one: list[float], other: list[float]) -> float:
    """On average: how a prompt is cut into pieces, and who is beside it, moves a few by more."""
    assert len(one) == len(other)
    return float(np.abs(np.subtract(one, other)).mean())


def by_engine(tokens: list[int]) -> list[float]:
    """Decoded in one piece, by an engine that holds nothing else."""
    with LlamaEngine.open(default_model(), CONTEXT_SETTINGS) as engine:
        (row,) = engine.decode([Work(0, np.array(tokens, np.int32), all_logits=True)])
        rows = range(row - len(tokens) + 1, row)
        return [float(log_probabilities(engine.logits(at))[token]) for at, token in zip(rows, tokens[1:], strict=True)]


def test_lm_eval_gets_the_loglikelihoods_of_a_session(http: httpx.Client, session: Session) -> None:
    context = tokens_of(http, CONTEXT)
    prompts = [context + tokens_of(http, answer) for answer in ANSWERS]
    body = {"prompt": prompts, "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True}
    expected = [session.logprobs(prompt) for prompt in prompts]
    for _ in range(2):  # the second time the cache knows them all
        choices = http.post("/v1/completions", json=body).json()["choices"]
        assert [choice["index"] for choice in choices] == [0, 1, 2, 3]
        sums = []
        for choice, chances in zip(choices, expected, strict=True):
            own, top = choice["logprobs"]["token_logprobs"], choice["logprobs"]["top_logprobs"]
            assert len(own) == len(chances) + 2
            assert own[0] is None
            assert difference(own[1:-1], chances) < ROUNDING
            assert all(chance <= max(others.values()) for chance, others in zip(own[1:], top[1:], strict=True))
            sums.append(sum(own[len(context) : -1]))
        assert sums[0] > sums[1] + 1, "else the model knows nothing, and any number would do"


def test_a_session_says_what_the_engine_does(http: httpx.Client, session: Session) -> None:
    tokens = tokens_of(http, "".join([CONTEXT + answer for answer in ANSWERS] * 2))[:100]
    assert len(tokens) == 100 > CONTEXT_SETTINGS.micro_batch_tokens
    expected = by_engine(tokens)
    session.generate(tokens[:50], max_tokens=1)
    assert difference(session.logprobs(tokens), expected) < ROUNDING
    assert difference(session.logprobs([0, *tokens[:-1]]), expected) > 10 * ROUNDING, "else anything would do"
    assert session.generate(tokens, max_tokens=1).report.reused == 100, "it was kept"
