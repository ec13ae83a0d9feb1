"""A sequence of tokens that was there before is not gone on with, but for breakers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from leftoff.engine.engine import LlamaEngine
from leftoff.engine.model import Model
from leftoff.engine.sampler import Sampler
from leftoff.sampling import Sampling
from leftoff.types import Logits
from tests.engine.draws import few_logits
from tests.factory import Scale
from tests.factory.gguf import Value, write_model
from tests.factory.parts import attention, body
from tests.factory.vocabulary import small_vocabulary

pytestmark = pytest.mark.parametrize("engine", ["llama"], indirect=True)

DRY = Sampling(dry_multiplier=0.8, dry_sequence_breakers=())


def discouraged(logits: Logits, past: list[int], sampling: Sampling) -> Logits:
    """Each token pays for the longest end of the past that it followed before."""
    result = logits.copy()
    recent = past[-sampling.dry_penalty_last_n :]
    longest: dict[int, int] = {}
    for end in range(1, len(recent)):
        before, length = recent[:end], 0
        while length < end and before[-1 - length] == recent[-1 - length]:
            length += 1
        if length >= sampling.dry_allowed_length:
            longest[recent[end]] = max(length, longest.get(recent[end], 0))
    for token, length in longest.items():
        result[token] -= sampling.dry_multiplier * sampling.dry_base ** (length - sampling.dry_allowed_length)
    return result


def choice(engine: LlamaEngine, sampling: Sampling, past: list[int], logits: Logits) -> int:
    sampler = Sampler(engine.model, sampling)
    sampler.accept(np.array(past, np.int32))
    return sampler.sample_from(logits)


@pytest.mark.parametrize(
    "sampling",
    [
        DRY,
        replace(DRY, dry_allowed_length=1),
        replace(DRY, dry_allowed_length=0),
        replace(DRY, dry_base=3.0),
        replace(DRY, dry_multiplier=0.1),
        replace(DRY, dry_penalty_last_n=12),
    ],
)
def test_repetition_is_discouraged_as_the_formula_says(engine: LlamaEngine, sampling: Sampling) -> None:
    rng = np.random.default_rng(5)
    changed = 0
    for _ in range(30):
        past = rng.integers(0, 3, 20).tolist()
        sampler = Sampler(engine.model, sampling)
        sampler.accept(np.array(past, np.int32))
        for _ in range(10):  # what it chooses itself counts too
            logits = few_logits(engine, rng.normal(0, 1, 3).astype(np.float32))
            expected = int(discouraged(logits, past, sampling).argmax())
            assert sampler.sample_from(logits) == expected
            past.append(expected)
            changed += expected != logits.argmax()
    assert changed > 10


def test_all_tokens_before_are_looked_at(engine: LlamaEngine) -> None:
    past = [1, 2, 3, 4, *range(20, 220), 1, 2, 3]
    logits = few_logits(engine, [0.0, 0, 0, 0, 1.0])
    assert choice(engine, DRY, past, logits) == 4, "the last 64 do not hold it"
    assert choice(engine, replace(DRY, dry_penalty_last_n=-1), past, logits) != 4
    assert choice(engine, replace(DRY, dry_penalty_last_n=2**31 - 1), past, logits) != 4


@pytest.mark.parametrize("sampling", [Sampling(dry_multiplier=9.0), DRY])
def test_a_breaker_lets_a_sequence_start_anew(engine: LlamaEngine, sampling: Sampling) -> None:
    vocabulary = engine.model.vocabulary
    (newline,) = vocabulary.tokenize("\n").tolist()
    letters = [int(vocabulary.tokenize(letter)[0]) for letter in "abcd"]
    past = [*letters[:2], newline, letters[2], letters[3], *letters[:2], newline, letters[2]]
    logits = np.zeros(vocabulary.size, np.float32)
    logits[letters[3]] = 1
    is_broken = "\n" in sampling.dry_sequence_breakers
    assert (choice(engine, sampling, past, logits) == letters[3]) is is_broken


def test_samplers_do_not_share_what_they_remember(engine: LlamaEngine) -> None:
    logits = few_logits(engine, [0.0, 0, 0, 0, 1.0])
    told, untold = Sampler(engine.model, DRY), Sampler(engine.model, DRY)
    told.accept(np.array([1, 2, 3, 4, 9, 1, 2, 3], np.int32))
    untold.accept(np.array([1, 2, 3], np.int32))
    assert untold.sample_from(logits) == 4
    assert told.sample_from(logits) != 4
    told.close()
    assert choice(engine, DRY, [1, 2, 3], logits) == 4


@pytest.mark.parametrize("breaker", ["é", "🚢 ahoy", "<|im_end|>", "x" * 40, " ", "\ufffd"])
def test_any_text_may_be_a_breaker(engine: LlamaEngine, breaker: str) -> None:
    vocabulary = engine.model.vocabulary
    tokens = vocabulary.tokenize(breaker, parse_special=False).tolist()
    past = [1, 2, 3, 4, *tokens, 1, 2, 3]
    sampling = replace(DRY, dry_sequence_breakers=(breaker,))
    assert choice(engine, sampling, past, few_logits(engine, [0.0, 0, 0, 0, 1.0])) != 4, "the repeat is whole"


@pytest.mark.usefixtures("engine")
def test_a_model_without_a_tokenizer_knows_no_breakers(tmp_path: Path) -> None:
    path, size = tmp_path / "mute.gguf", len(small_vocabulary().tokens)
    shape: dict[str, Value] = {
        f"llama.{key}": value for key, value in (body(Scale(), layers=1) | attention(Scale())).items()
    }
    mute: dict[str, Value] = {"general.architecture": "llama", "tokenizer.ggml.model": "none", "llama.vocab_size": size}
    write_model(path, mute | shape, lambda tensor: np.zeros((tensor.rows, tensor.columns), np.float32))
    model = Model(path)
    assert not model.vocabulary.has_text
    sampler = Sampler(model, Sampling(dry_multiplier=0.8))
    sampler.accept(np.array([1, 2, 3, 4, 9, 1, 2, 3], np.int32))
    assert sampler.sample_from((np.arange(size) == 4).astype(np.float32)) != 4
    sampler.close()
    model.close()
