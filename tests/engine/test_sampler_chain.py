"""Each link of a chain narrows or changes the choice as its definition says, and is not there when it is off."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from leftoff.engine.engine import LlamaEngine
from leftoff.engine.sampler import Sampler
from leftoff.sampling import SAMPLERS, Sampling
from leftoff.types import Logits
from tests.engine.draws import HOT, chances, draw, few_logits, random_logits

pytestmark = pytest.mark.parametrize("engine", ["llama"], indirect=True)

WARM = Sampling(temperature=0.8, seed=7)
SEEDS = range(12)


def left(engine: LlamaEngine, logits: Logits, **settings: Any) -> set[int]:  # noqa: ANN401
    """The tokens that the settings leave to choose from. One of twelve is missed once in 10^20 times."""
    return {*draw(engine, Sampling(temperature=HOT, seed=3, **settings), logits, 600)}


def typical(logits: Logits, share: float) -> set[int]:
    """Those whose surprise is nearest to the expected one, until they have the share."""
    known = np.flatnonzero(logits > -np.inf)
    chance = chances(logits[known]).astype(float)
    surprise = -np.log(chance)
    order = np.argsort(np.abs(surprise - (chance * surprise).sum()))
    return {*known[order[: np.searchsorted(chance[order].cumsum(), share) + 1]].tolist()}


def top_n_sigma(logits: Logits, num_sigmas: float) -> set[int]:
    known = logits[logits > -np.inf]
    return {*np.flatnonzero(logits >= known.max() - num_sigmas * known.std()).tolist()}


def without_top_choices(logits: Logits, threshold: float) -> set[int]:
    """Of the tokens above the threshold only the least likely stays."""
    chance = chances(logits)
    above = np.flatnonzero(chance >= threshold)
    weakest = above[np.argsort(chance[above])][:1]
    return {*np.flatnonzero((logits > -np.inf) & (chance < threshold)).tolist(), *weakest.tolist()}


def min_p(logits: Logits, share: float) -> set[int]:
    return {*np.flatnonzero(chances(logits) >= share * chances(logits).max()).tolist()}


Rule = Callable[[Logits, float], set[int]]
RULES: dict[str, tuple[Rule, tuple[float, ...]]] = {
    "typical_p": (typical, (0.0, 0.2, 0.5, 0.9)),
    "top_n_sigma": (top_n_sigma, (0.2, 1.0, 1.7)),
    "xtc_threshold": (without_top_choices, (0.02, 0.05, 0.1, 0.2)),
    "min_p": (min_p, (0.02, 0.1, 0.5)),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in RULES for value in RULES[name][1]])
def test_what_is_left_is_what_the_definition_says(engine: LlamaEngine, name: str, value: float) -> None:
    rule, _ = RULES[name]
    settings = {name: value} | ({"xtc_probability": 1.0} if rule is without_top_choices else {})
    narrowed = 0
    for seed in SEEDS:
        logits = random_logits(engine, seed)
        expected = rule(logits, value)
        assert left(engine, logits, **settings) == expected
        narrowed += len(expected) < 12
    assert narrowed > 3


def test_xtc_strikes_as_often_as_its_probability_says(engine: LlamaEngine) -> None:
    logits = few_logits(engine, [8, 7, -20])
    sampling = Sampling(temperature=0.1, xtc_probability=0.3, seed=5)
    drawn = draw(engine, sampling, logits, 2000)
    assert 0.26 < drawn.count(1) / 2000 < 0.34
    assert drawn == draw(engine, sampling, logits, 2000)


def test_the_likeliest_of_what_is_left_is_chosen_without_temperature(engine: LlamaEngine) -> None:
    for seed in SEEDS:
        logits = random_logits(engine, seed)
        for settings, tokens in (
            ({"xtc_probability": 1.0}, without_top_choices(logits, 0.1)),
            ({"typical_p": 0.3}, typical(logits, 0.3)),
        ):
            expected = max(tokens, key=logits.__getitem__)
            assert draw(engine, Sampling(**settings), logits, 3) == [expected] * 3  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "off",
    [
        {"typical_p": 1.0},
        {"top_n_sigma": -1.0},
        {"top_n_sigma": 0.0},
        {"top_k": -1},
        {"xtc_probability": 0.0, "xtc_threshold": 0.0},
        {"xtc_probability": 1.0, "xtc_threshold": 0.51},
        {"dry_multiplier": 0.0, "dry_allowed_length": 0},
        {"dry_multiplier": 5.0, "dry_allowed_length": 0, "dry_penalty_last_n": 0},
        {"dynatemp_range": 0.0, "dynatemp_exponent": 3.0},
        {"mirostat": 0, "mirostat_tau": 0.1, "mirostat_eta": 0.9},
    ],
    ids=str,
)
def test_what_is_off_changes_nothing(engine: LlamaEngine, off: dict[str, Any]) -> None:
    logits = random_logits(engine, 1)
    assert draw(engine, replace(WARM, **off), logits, 80) == draw(engine, WARM, logits, 80)


@pytest.mark.parametrize(("spread", "exponent"), [(0.5, 1.0), (0.5, 8.0), (2.0, 0.5)])
def test_the_temperature_follows_the_entropy(engine: LlamaEngine, spread: float, exponent: float) -> None:
    count, values = 4000, np.linspace(0, 3, 8, dtype=np.float32)
    sampling = Sampling(temperature=1.0, dynatemp_range=spread, dynatemp_exponent=exponent, top_k=8, seed=3)
    drawn = np.bincount(draw(engine, sampling, few_logits(engine, values), count))
    chance = chances(values)
    low, high = max(0.0, 1 - spread), 1 + spread
    share = (-(chance * np.log(chance)).sum() / np.log(8)) ** exponent

    def chi_square(temperature: float) -> float:
        expected = count * chances(values / np.float32(temperature))
        return float(((drawn - expected) ** 2 / expected).sum())

    assert chi_square(low + (high - low) * share) < 24.3  # seven degrees of freedom: once in a thousand seeds
    assert chi_square(1.0) > 50, "the fixed temperature must show"


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=1e-30),
        Sampling(temperature=1e-45, samplers=("temperature",)),
        Sampling(temperature=0.0, samplers=("top_p", "temperature")),
        Sampling(temperature=0.0, mirostat=2),
        *(Sampling(temperature=0.5, dynatemp_range=0.5, logit_bias=((5, bias),)) for bias in np.linspace(80, 110, 31)),
    ],
    ids=str,
)
def test_the_likeliest_token_is_chosen_where_floats_overflow(engine: LlamaEngine, sampling: Sampling) -> None:
    logits = np.random.default_rng(4).normal(0, 1, engine.model.vocabulary.size).astype(np.float32)
    logits[5] = 10
    assert draw(engine, sampling, logits, 5) == [5] * 5


@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_can_be_repeated(engine: LlamaEngine, version: int) -> None:
    logits = random_logits(engine, 2, 200)
    sampling = replace(WARM, mirostat=version, mirostat_tau=3.0)
    runs = [draw(engine, replace(sampling, seed=seed), logits, 60) for seed in (7, 7, 8)]
    assert runs[0] == runs[1] != runs[2]
    assert len({*runs[0]}) > 5


@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_chooses_among_the_few_that_are_not_forbidden(engine: LlamaEngine, version: int) -> None:
    logits = few_logits(engine, -2 * np.log(np.arange(1, 13)).astype(np.float32))
    drawn = {*draw(engine, replace(WARM, mirostat=version), logits, 300)}
    assert len(drawn) > 3
    assert drawn <= {*range(12)}


def mirostat_limit(version: int, chance: Logits, mu: float, vocabulary_size: int) -> int:
    """How many of the likeliest tokens may be chosen from."""
    if version == 2:
        return max(1, int((-np.log2(chance) <= mu).sum()))
    ranks = np.arange(1, min(100, chance.size))
    steps = np.log((ranks + 1) / ranks)
    slope = float((steps * np.log(chance[ranks - 1] / chance[ranks])).sum() / (steps**2).sum())
    return max(1, int(((slope - 1) * 2**mu / (1 - vocabulary_size ** (1 - slope))) ** (1 / slope)))


@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_narrows_the_choice_by_how_surprising_the_last_was(engine: LlamaEngine, version: int) -> None:
    tau, eta = 2.5, 0.3
    logits = few_logits(engine, -1.4 * np.log(np.arange(1, 201)).astype(np.float32))  # the likeliest first
    sampler = Sampler(
        engine.model, replace(WARM, temperature=1.0, mirostat=version, mirostat_tau=tau, mirostat_eta=eta)
    )
    chance, mu, surprises, edges = chances(logits[:200]).astype(float), 2 * tau, [], 0
    for _ in range(600):
        limit = mirostat_limit(version, chance, mu, engine.model.vocabulary.size)
        chosen = sampler.sample_from(logits)
        assert chosen < limit + 1  # one more, for rounding
        edges += chosen >= limit - 2
        surprises.append(-np.log2(chance[chosen] / chance[: max(limit, chosen + 1)].sum()))
        mu -= eta * (surprises[-1] - tau)
    assert edges > 10, "the limit must be reached, not only kept"
    assert abs(np.mean(surprises) - tau) < 0.2


@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_takes_the_place_of_all_others(engine: LlamaEngine, version: int) -> None:
    logits = random_logits(engine, 2)
    alone = replace(WARM, mirostat=version)
    among = replace(alone, top_k=1, top_p=0.1, typical_p=0.1, xtc_probability=1.0, dry_multiplier=9.0, samplers=())
    assert not replace(among, repeat_penalty=2.0).has_penalties
    assert draw(engine, among, logits, 60) == draw(engine, alone, logits, 60)


def test_the_order_is_kept(engine: LlamaEngine) -> None:
    logits = few_logits(engine, np.log([8.0, 4.0, 2.0, 1.0]))
    assert left(engine, logits, top_p=0.5) == {0}  # 8/15
    hot_first = tuple(reversed(SAMPLERS))
    assert left(engine, logits, top_p=0.5, samplers=hot_first) == {0, 1}  # 1/4 + 1/4


def test_a_sampler_that_is_not_named_is_off(engine: LlamaEngine) -> None:
    logits = random_logits(engine, 3)
    busy = replace(WARM, top_k=2, min_p=0.9, repeat_penalty=5.0, xtc_probability=1.0, top_n_sigma=0.1, typical_p=0.1)
    plain = Sampling(temperature=1.0, seed=7)
    assert draw(engine, replace(busy, samplers=()), logits, 60) == draw(engine, plain, logits, 60)
    assert not replace(busy, samplers=("dry",)).has_penalties
    top_k = replace(plain, top_k=2)
    assert draw(engine, replace(busy, samplers=("top_k",)), logits, 60) == draw(engine, top_k, logits, 60)
