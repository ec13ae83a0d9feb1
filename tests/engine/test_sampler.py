"""The next token is chosen as the settings say, and again the same with the same seed."""

from collections import Counter
from dataclasses import fields, replace

import numpy as np
import pytest

from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.errors import InputError
from leftoff.engine.sampler import Sampler
from leftoff.sampling import Sampling
from leftoff.types import Logits
from tests.engine.draws import draw
from tests.engine.scenario import prompt

pytestmark = pytest.mark.parametrize("engine", ["llama"], indirect=True)

WARM = Sampling(temperature=0.8, seed=7)
PENALTIES = Sampling(repeat_penalty=1.3, frequency_penalty=0.4, presence_penalty=0.7)


def some_logits(engine: LlamaEngine, seed: int = 1) -> Logits:
    return np.random.default_rng(seed).normal(0, 3, engine.model.vocabulary.size).astype(np.float32)


def penalised(logits: Logits, past: list[int], sampling: Sampling) -> Logits:
    """The formula of the three penalties, over the last tokens."""
    result = logits.copy()
    for token, count in Counter(past[-sampling.repeat_last_n :]).items():
        above = result[token] > 0
        result[token] *= 1 / sampling.repeat_penalty if above else sampling.repeat_penalty
        result[token] -= count * sampling.frequency_penalty + sampling.presence_penalty
    return result


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        replace(WARM, top_k=1),
        replace(WARM, top_p=1e-6),
        replace(WARM, top_p=0.0),
        replace(WARM, min_p=1.0),
        replace(WARM, temperature=1e-6),
    ],
)
def test_the_likeliest_token_is_chosen(engine: LlamaEngine, sampling: Sampling) -> None:
    for seed in range(20):
        logits = some_logits(engine, seed)
        assert draw(engine, sampling, logits) == [logits.argmax()]


def test_the_same_seed_chooses_the_same_tokens_and_another_does_not(engine: LlamaEngine) -> None:
    logits = some_logits(engine) / np.float32(3)
    runs = [draw(engine, replace(WARM, seed=seed), logits, 40) for seed in (7, 7, 8, None, None)]
    assert runs[0] == runs[1]
    assert len({tuple(run) for run in runs}) == 4


def test_a_chosen_seed_is_told_so_that_a_reply_can_be_repeated(engine: LlamaEngine) -> None:
    sampler = Sampler(engine.model, replace(WARM, seed=None))
    logits = some_logits(engine)
    first = [sampler.sample_from(logits) for _ in range(40)]
    assert draw(engine, replace(WARM, seed=sampler.seed), logits, 40) == first
    assert Sampler(engine.model, replace(WARM, seed=-1)).seed == 2**32 - 1


def test_tokens_are_chosen_as_often_as_softmax_says(engine: LlamaEngine) -> None:
    count = 4000
    logits = np.full(engine.model.vocabulary.size, -np.inf, np.float32)
    logits[10:18] = np.linspace(0, 2.5, 8)
    drawn = np.bincount(draw(engine, Sampling(temperature=0.7, seed=3), logits, count), minlength=logits.size)

    def chi_square(temperature: float) -> float:
        weights = np.exp(logits[10:18] / temperature)
        expected = count * weights / weights.sum()
        return float(((drawn[10:18] - expected) ** 2 / expected).sum())

    assert drawn[10:18].sum() == count
    assert chi_square(0.7) < 24.3  # seven degrees of freedom: exceeded once in a thousand seeds
    assert chi_square(0.8) > 50, "another temperature must show"


def test_only_the_best_tokens_are_chosen_from(engine: LlamaEngine) -> None:
    logits = np.zeros(engine.model.vocabulary.size, np.float32)
    logits[:4] = np.log([8, 4, 2, 1]) + 20  # all others are out of reach
    hot = Sampling(temperature=1.0, seed=5)
    assert {*draw(engine, hot, logits, 300)} == {0, 1, 2, 3}
    assert {*draw(engine, replace(hot, top_k=2), logits, 300)} == {0, 1}
    assert {*draw(engine, replace(hot, top_p=0.9), logits, 300)} == {0, 1, 2}  # 8/15 + 4/15 < 0.9
    assert {*draw(engine, replace(hot, min_p=0.2), logits, 300)} == {0, 1, 2}  # 2/8 of the best, 1/8 is too little
    assert {*draw(engine, replace(hot, min_p=0.9, min_keep=2), logits, 300)} == {0, 1}
    assert {*draw(engine, replace(hot, top_p=0.1, min_keep=3), logits, 300)} == {0, 1, 2}


@pytest.mark.parametrize("top_k", [2**31 - 1, 10**6, 0, -1])
def test_a_top_k_beyond_the_vocabulary_leaves_all_tokens(engine: LlamaEngine, top_k: int) -> None:
    flat = np.zeros(engine.model.vocabulary.size, np.float32)
    assert len({*draw(engine, replace(WARM, top_k=top_k), flat, 50)}) > 20


@pytest.mark.parametrize("sampling", [Sampling(), WARM])
def test_a_bias_forces_or_forbids_a_token(engine: LlamaEngine, sampling: Sampling) -> None:
    logits = some_logits(engine)
    best, second = np.argsort(logits)[:-3:-1].tolist()
    assert draw(engine, replace(sampling, logit_bias=((5, 100.0),)), logits, 10) == [5] * 10
    forbidden = replace(sampling, logit_bias=((best, -np.inf),))
    assert best not in draw(engine, forbidden, logits, 200)
    assert draw(engine, replace(forbidden, temperature=0), logits) == [second]


@pytest.mark.parametrize("token", [-1, 10**6, 2**31])
def test_a_bias_on_an_unknown_token_is_refused(engine: LlamaEngine, token: int) -> None:
    with pytest.raises(InputError, match=f"token {token} is not in the vocabulary"):
        Sampler(engine.model, Sampling(logit_bias=((token, 1.0),)))


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(repeat_penalty=1.6),
        Sampling(frequency_penalty=0.4),
        Sampling(presence_penalty=0.7),
        PENALTIES,
        replace(PENALTIES, repeat_last_n=5),
        Sampling(frequency_penalty=-0.4),
    ],
)
def test_penalties_change_the_choice_as_their_formula_says(engine: LlamaEngine, sampling: Sampling) -> None:
    rng = np.random.default_rng(11)
    changed = 0
    for _ in range(20):
        # few tokens in reach, so that what is penalised matters
        logits = np.full(engine.model.vocabulary.size, -50, np.float32)
        logits[:8] = rng.normal(0.5, 0.5, 8)
        past = rng.integers(0, 8, 5).tolist()
        sampler = Sampler(engine.model, sampling)
        sampler.accept(np.array(past, np.int32))
        for _ in range(6):  # what it chooses itself counts too
            expected = int(penalised(logits, past, sampling).argmax())
            assert sampler.sample_from(logits) == expected
            past.append(expected)
            changed += expected != logits.argmax()
    assert changed > 10


def test_penalties_over_no_tokens_change_nothing(engine: LlamaEngine) -> None:
    logits = some_logits(engine)
    assert len({*draw(engine, replace(PENALTIES, repeat_last_n=0), logits, 30)}) == 1
    assert len({*draw(engine, PENALTIES, logits, 30)}) > 5


def test_penalties_over_more_tokens_than_memory_holds_do_not_kill_the_process(engine: LlamaEngine) -> None:
    logits = some_logits(engine)
    endless = draw(engine, replace(PENALTIES, repeat_last_n=2**31 - 1), logits, 100)
    assert endless == draw(engine, replace(PENALTIES, repeat_last_n=-1), logits, 100)
    assert endless == draw(engine, replace(PENALTIES, repeat_last_n=100), logits, 100)
    assert endless != draw(engine, replace(PENALTIES, repeat_last_n=3), logits, 100)


def test_unknown_tokens_are_not_counted(engine: LlamaEngine) -> None:
    sampler = Sampler(engine.model, PENALTIES)
    with pytest.raises(InputError):
        sampler.accept(np.array([0, engine.model.vocabulary.size], np.int32))


kept_alike = pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        replace(WARM, temperature=1.5),
        replace(WARM, top_k=20, top_p=0.9, min_p=0.02),
        replace(PENALTIES, temperature=1.2, seed=9, logit_bias=((3, 4.0), (300, -np.inf))),
        replace(WARM, temperature=1.5, dynatemp_range=0.7, typical_p=0.9, top_n_sigma=2.0, dry_multiplier=0.8),
        replace(WARM, temperature=1.5, xtc_probability=0.5, xtc_threshold=0.01, top_k=50),
        replace(WARM, mirostat=1),
        replace(WARM, mirostat=2, logit_bias=((300, -np.inf),)),
        replace(WARM, adaptive_target=0.3, adaptive_decay=0.5, logit_bias=((300, -np.inf),)),
    ],
)


@kept_alike
def test_kept_logits_give_the_tokens_that_the_batch_would_have(engine: LlamaEngine, sampling: Sampling) -> None:
    from_batch, from_kept = Sampler(engine.model, sampling), Sampler(engine.model, sampling)
    tokens = prompt(engine, 20)
    chosen = []
    for _ in range(40):
        (row,) = engine.decode([Work(0, tokens)])
        kept = engine.logits(row).copy()
        chosen.append(from_batch.sample(engine.context, row))
        assert from_kept.sample_from(kept) == chosen[-1]
        tokens = np.array(chosen[-1:], np.int32)
    assert len({*chosen}) > 5


@kept_alike
def test_also_where_a_grammar_forbids_tokens_and_many_are_equally_likely(
    engine: LlamaEngine, sampling: Sampling
) -> None:
    """Tokens of one logit are sorted in an order that depends on how many candidates there are."""
    from_batch, from_kept = Sampler(engine.model, sampling), Sampler(engine.model, sampling)
    rng = np.random.default_rng(1)
    tokens, chosen = prompt(engine, 20), []
    for _ in range(40):
        (row,) = engine.decode([Work(0, tokens)])
        logits = engine.logits(row)
        logits[:] = rng.integers(0, 3, logits.size)
        logits[rng.random(logits.size) < 0.7] = -np.inf
        kept = logits.copy()
        chosen.append(from_batch.sample_masked(engine.context, row))
        assert from_kept.sample_from(kept) == chosen[-1]
        assert kept[chosen[-1]] > -np.inf
        tokens = np.array(chosen[-1:], np.int32)


UNSIGNED = ["temperature", "dynatemp_range", "dynatemp_exponent", "dry_multiplier", "mirostat_tau", "mirostat_eta"]
SHARES = ["top_p", "min_p", "typical_p", "xtc_probability", "xtc_threshold"]
SIGNED = ["frequency_penalty", "presence_penalty", "top_n_sigma"]
BAD = [
    *((name, value) for name in UNSIGNED for value in (-0.1, np.inf, np.nan)),
    *((name, value) for name in SHARES for value in (-0.1, 1.1, np.nan)),
    *((name, value) for name in SIGNED for value in (np.inf, -np.inf, np.nan)),
    *(("repeat_penalty", value) for value in (0.0, -1.0, np.inf, np.nan)),
    *(("dry_base", value) for value in (0.9, np.inf, np.nan)),
    *((name, value) for name in ("top_k", "repeat_last_n", "dry_penalty_last_n") for value in (-2, 2**31, 1.5)),
    *(("dry_allowed_length", value) for value in (-1, 2**31, 2.0)),
    *(("mirostat", value) for value in (-1, 3, 1.0)),
    *(("adaptive_target", value) for value in (1.1, -np.inf, np.nan)),
    *(("adaptive_decay", value) for value in (-0.1, 1.0, np.nan)),
]


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_value_out_of_range_is_refused_by_name(name: str, value: float) -> None:
    assert name in {field.name for field in fields(Sampling)}
    with pytest.raises(ValueError, match=f"^{name} is {value}"):
        Sampling(**{name: value})  # type: ignore[arg-type]


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("bias", [np.nan, np.inf, 1e300, -1e300])
def test_a_bias_is_a_number_or_forbids(bias: float) -> None:
    with pytest.raises(ValueError, match=r"^logit_bias is .* for token 3"):
        Sampling(logit_bias=((2, -np.inf), (3, bias)))


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("names", [("top_k", "magic"), ("top_k", "top_k"), ("infill",)])
def test_samplers_are_known_and_named_once(names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"^samplers has"):
        Sampling(samplers=names)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("breakers", [("",), ("a\0b",), ("é" * 21,), ("x",) * 17])
def test_breakers_are_short_texts(breakers: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"^dry_sequence_breakers has"):
        Sampling(dry_sequence_breakers=breakers)
