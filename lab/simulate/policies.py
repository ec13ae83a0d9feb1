"""Eviction policies to compare the cache's own with."""

from dataclasses import dataclass

import numpy as np

from leftoff.cache.policy import Candidates, Column, Policy, ValuePerByte


class LeastRecentlyUsed(Policy):
    """Evicts the least recently used, whatever it is worth."""

    name = "lru"

    def rank(self, candidates: Candidates) -> Column:
        return candidates.last_used


@dataclass
class GreedyDual(Policy):
    """GreedyDual-Size-Frequency: tokens saved per byte, above a level that rises with every eviction."""

    name: str = "greedy-dual"
    level: float = 0.0

    def rank(self, candidates: Candidates) -> Column:
        worth: Column = (candidates.hits + 1) * candidates.saves / candidates.nbytes
        return candidates.stamp + worth

    def stamp(self) -> float:
        return self.level

    def evicted(self, rank: float) -> None:
        self.level = max(self.level, rank)


@dataclass
class FlopUtility(Policy):
    """Recency plus compute saved per byte, each normalised over the candidates (Marconi, MLSys 2025).

    `attention_share` is the part of the compute that grows with the position, as attention's does.
    """

    name: str = "flop-utility"
    alpha: float = 1.0
    attention_share: float = 1e-5

    def rank(self, candidates: Candidates) -> Column:
        age = np.maximum(candidates.now - candidates.last_used, 1e-6)
        start = candidates.position - candidates.saves
        flops = candidates.saves + self.attention_share * (candidates.position**2 - start**2)
        utility: Column = _normalised(1 / age) + self.alpha * _normalised(flops / candidates.nbytes)
        return np.where(candidates.branches > 1, np.inf, utility)


def _normalised(values: Column) -> Column:
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.zeros_like(values)


POLICIES: dict[str, type[Policy]] = {
    "value": ValuePerByte,
    "lru": LeastRecentlyUsed,
    "greedy-dual": GreedyDual,
    "flop-utility": FlopUtility,
}
