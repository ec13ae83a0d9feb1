"""Eviction policies: which resume point goes first when a budget is full.

A policy ranks all candidates at once, and the lowest rank is evicted. All policies weigh the same facts and differ in
how they estimate the chance of reuse:

    position   of the resume point
    saves      tokens that would be prefilled again without it
    nbytes     bytes that its eviction frees
    hits       how often it was resumed from
    last_used  when that was, or when it was added
    branches   continuations, in the tree or in the engine: 0 at the end of an idle conversation, more than 1 at a fork
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.float64]


class Candidates(NamedTuple):
    """All resume points that can be evicted, as columns. `stamp` is `Policy.stamp()` of their last use."""

    now: float
    position: Column
    saves: Column
    nbytes: Column
    hits: Column
    last_used: Column
    stamp: Column
    branches: Column


class Policy(ABC):
    """Ranks resume points by what they are worth."""

    name: str

    @abstractmethod
    def rank(self, candidates: Candidates) -> Column:
        """The lowest is evicted first."""

    def stamp(self) -> float:
        """Stored with a point whenever it is used."""
        return 0.0

    def evicted(self, rank: float) -> None:  # noqa: B027
        """Called with the rank of each point that is evicted."""


@dataclass
class ValuePerByte(Policy):
    """Chance of reuse, times tokens saved, per byte freed.

    The chance falls as one over the time since the last use, which is how people and agents come back. A conversation
    goes on from its end. A point in its middle is twenty times less likely to be resumed from: one request in twenty
    goes back a little, because something near the end was changed. Forks count in full, times their hits; the first
    hit does not count, since that was the conversation itself going on. So a conversation keeps its end and a few
    points before it, far apart, since a point close to another saves little; a shared header keeps its own; and of
    idle conversations the oldest is evicted first, from its end.
    """

    name: str = "value"
    half_life_s: float = 50.0
    left_behind: float = 0.05

    def rank(self, candidates: Candidates) -> Column:
        age = np.maximum(candidates.now - candidates.last_used, 0.0)
        uses = np.where(candidates.branches == 0, 1.0, np.maximum(candidates.hits, 1.0))
        chance = np.where(candidates.branches == 1, self.left_behind, 1.0) * uses / (1 + age / self.half_life_s)
        value: Column = chance * candidates.saves / candidates.nbytes
        return value


class Limit(NamedTuple):
    """Which points may be evicted.

    From a medium that wears, those that free at most `most_bytes`, and were not used after `rested_since` or are inside
    a conversation that went on. In any case none that was used after `unused_since`.
    """

    most_bytes: float = math.inf
    rested_since: float = math.inf
    unused_since: float = math.inf


NO_LIMIT = Limit()
