"""Each policy gives up first what its description says."""

import numpy as np
import pytest

from lab.simulate.policies import POLICIES, FlopUtility, GreedyDual, LeastRecentlyUsed
from leftoff.cache.policy import Candidates, Column, Policy, ValuePerByte


def candidates(now: float = 100.0, **columns: list[float]) -> Candidates:
    """Equal in everything that is not named."""
    size = len(next(iter(columns.values())))
    usual = {"position": 100.0, "saves": 50.0, "nbytes": 10.0, "hits": 0.0, "last_used": 90.0, "stamp": 0.0}
    usual["branches"] = 0.0
    return Candidates(**{name: np.array(columns.get(name, [value] * size)) for name, value in usual.items()}, now=now)


def order(ranks: Column) -> list[int]:
    """Who goes first, who then."""
    return [int(index) for index in ranks.argsort()]


def test_least_recently_used_goes_by_time_alone() -> None:
    ranks = LeastRecentlyUsed().rank(candidates(last_used=[30, 10, 20], saves=[1, 1000, 1], hits=[0, 9, 0]))
    assert order(ranks) == [1, 2, 0]


WORTH_POLICIES = [GreedyDual(), ValuePerByte(), FlopUtility()]


@pytest.mark.parametrize("policy", WORTH_POLICIES, ids=lambda policy: policy.name)
def test_what_saves_less_goes_first(policy: Policy) -> None:
    assert order(policy.rank(candidates(saves=[40, 10, 30]))) == [1, 2, 0]


@pytest.mark.parametrize("policy", WORTH_POLICIES, ids=lambda policy: policy.name)
def test_what_frees_more_goes_first(policy: Policy) -> None:
    assert order(policy.rank(candidates(nbytes=[10, 40, 20]))) == [1, 2, 0]


@pytest.mark.parametrize("policy", [GreedyDual(), ValuePerByte()], ids=lambda policy: policy.name)
def test_what_was_resumed_from_less_often_goes_first(policy: Policy) -> None:
    assert order(policy.rank(candidates(hits=[3, 1, 2], branches=[2, 2, 2]))) == [1, 2, 0]


@pytest.mark.parametrize("policy", [ValuePerByte(), FlopUtility(), LeastRecentlyUsed()], ids=lambda policy: policy.name)
def test_what_was_used_longer_ago_goes_first(policy: Policy) -> None:
    assert order(policy.rank(candidates(last_used=[90, 10, 50]))) == [1, 2, 0]


def test_what_a_conversation_has_left_behind_goes_before_its_end_and_before_forks() -> None:
    ranks = ValuePerByte(left_behind=0.1).rank(candidates(branches=[0, 1, 2], hits=[0, 1, 1]))
    np.testing.assert_allclose(ranks[1:] / ranks[0], [0.1, 1.0])


def test_flop_utility_never_gives_up_a_fork() -> None:
    ranks = FlopUtility().rank(candidates(branches=[2, 1, 0], saves=[1, 50, 50]))
    assert order(ranks)[-1] == 0


def test_the_value_halves_when_the_half_life_has_passed() -> None:
    ranks = ValuePerByte(half_life_s=60.0).rank(candidates(now=100.0, last_used=[100, 40]))
    np.testing.assert_allclose(ranks, [5.0, 2.5])


def test_greedy_dual_ages_what_is_not_used() -> None:
    policy = GreedyDual()
    dear, cheap = 9.0, 4.0  # worth per byte
    early = policy.stamp()
    policy.evicted(6.0)
    late = policy.stamp()
    ranks = policy.rank(candidates(stamp=[early, late], saves=[dear, cheap], nbytes=[1, 1]))
    assert ranks.tolist() == [9.0, 10.0], "the level has overtaken the dearer one"


def test_the_level_of_greedy_dual_never_falls() -> None:
    policy = GreedyDual()
    policy.evicted(6.0)
    policy.evicted(2.0)
    assert policy.stamp() == 6.0


def test_flop_utility_is_recency_plus_compute_per_byte_each_from_zero_to_one() -> None:
    policy = FlopUtility(alpha=0.5, attention_share=0.01)
    given = candidates(
        now=20.0,
        position=[100, 200, 50],
        saves=[100, 50, 10],
        nbytes=[10, 20, 5],
        last_used=[10, 18, 15],
    )
    # recency 1/10, 1/2, 1/5: normalised 0, 1, 0.25
    # compute 100 + 0.01 (100² - 0²) = 200, 50 + 0.01 (200² - 150²) = 225, 10 + 0.01 (50² - 40²) = 19
    # per byte 20, 11.25, 3.8: normalised 1, 7.45 / 16.2, 0
    np.testing.assert_allclose(policy.rank(given), [0.5, 1 + 0.5 * 7.45 / 16.2, 0.25])


def test_without_attention_compute_is_the_number_of_tokens() -> None:
    policy = FlopUtility(alpha=1.0, attention_share=0.0)
    given = candidates(saves=[10, 20, 30], position=[900, 20, 30], nbytes=[1, 1, 1])
    np.testing.assert_allclose(policy.rank(given), [0.0, 0.5, 1.0])


@pytest.mark.parametrize("name", POLICIES)
def test_equals_rank_equal_and_a_policy_knows_its_name(name: str) -> None:
    policy = POLICIES[name]()
    assert policy.name == name
    ranks = policy.rank(candidates(hits=[3, 3, 3]))
    assert np.isfinite(ranks).all()
    assert len(set(ranks.tolist())) == 1
