"""Who goes first when a budget is full. A policy ranks all candidates at once; the lowest goes.

All of them weigh the same facts. They differ in how they guess the chance of reuse:

    saves      tokens that would be read again without the point
    nbytes     bytes that its eviction really frees
    hits       how often it was resumed from
    last_used  when that was, or when it was made
    branches   how many ways go on from it, to later points or in the engine: 0 at the end of a conversation that
               rests, more than 1 at a fork
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.float64]


class Candidates(NamedTuple):
    """What can be evicted now, as columns. `stamp` is what the policy gave the point when it was last used."""

    now: float
    position: Column
    saves: Column
    nbytes: Column
    hits: Column
    last_used: Column
    stamp: Column
    branches: Column


class Policy(Protocol):
    name: str

    def rank(self, candidates: Candidates) -> Column:
        """The lowest goes first."""
        ...

    def stamp(self) -> float:
        """Remembered with a point at each use."""
        ...

    def evicted(self, rank: float) -> None: ...


class LeastRecentlyUsed:
    """What was not used for longest goes first, whatever it is worth."""

    name = "lru"

    def rank(self, candidates: Candidates) -> Column:
        return candidates.last_used

    def stamp(self) -> float:
        return 0.0

    def evicted(self, rank: float) -> None: ...


@dataclass
class GreedyDual:
    """GreedyDual-Size-Frequency: worth per byte above a level that rises with every eviction, so the unused age."""

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
class FlopUtility:
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

    def stamp(self) -> float:
        return 0.0

    def evicted(self, rank: float) -> None: ...


@dataclass
class ValuePerByte:
    """Chance of reuse times tokens saved per byte freed.

    The chance falls with the time since the last use, as one over it: that is how people and agents come back. A
    conversation goes on from its end. What it has left behind is twenty times less likely to be resumed from: one
    request in twenty goes back a little, because something near its end was changed. Forks count in full, and more the
    more often they were resumed from; the first time does not count, that was the conversation itself going on. So a
    conversation keeps its end and few points before it, far apart, since those close to another save little; a header
    keeps its own; and of the conversations at rest the oldest is given up, from its end.
    """

    name: str = "value"
    half_life_s: float = 60.0
    left_behind: float = 0.05

    def rank(self, candidates: Candidates) -> Column:
        age = np.maximum(candidates.now - candidates.last_used, 0.0)
        uses = np.where(candidates.branches == 0, 1.0, np.maximum(candidates.hits, 1.0))
        chance = np.where(candidates.branches == 1, self.left_behind, 1.0) * uses / (1 + age / self.half_life_s)
        value: Column = chance * candidates.saves / candidates.nbytes
        return value

    def stamp(self) -> float:
        return 0.0

    def evicted(self, rank: float) -> None: ...


def _normalised(values: Column) -> Column:
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.zeros_like(values)


POLICIES: dict[str, type[Policy]] = {
    "value": ValuePerByte,
    "lru": LeastRecentlyUsed,
    "greedy-dual": GreedyDual,
    "flop-utility": FlopUtility,
}
