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
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from leftoff.cache.node import ResumePoint

Column = npt.NDArray[np.float64]

_POSITION, _SAVES, _NBYTES, _HITS, _LAST_USED, _STAMP, _BRANCHES = range(7)  # rows of the table, as in `Candidates`
_FIRST_CAPACITY = 256


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


class Victim(NamedTuple):
    """The point to evict next."""

    point: ResumePoint
    rank: float
    is_end: bool  # of a conversation, or a fork
    last_used: float


class Ranking:
    """The candidates for eviction as one table, so that a policy ranks ten thousand of them in one go.

    A point whose `nbytes` is 0 is never chosen.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._table = np.zeros((7, _FIRST_CAPACITY))
        self._points: list[ResumePoint] = []
        self.oldest = math.inf  # a lower bound of all `last_used`

    def __len__(self) -> int:
        return len(self._points)

    def __contains__(self, point: ResumePoint) -> bool:
        return 0 <= point.row < len(self._points) and self._points[point.row] is point

    def add(self, point: ResumePoint, now: float) -> None:
        point.row = len(self._points)
        self._points.append(point)
        self.oldest = min(self.oldest, now)
        if point.row == self._table.shape[1]:
            self._table = np.concatenate((self._table, np.zeros_like(self._table)), axis=1)
        self._table[:, point.row] = (point.position, 0, 0, 0, now, self._policy.stamp(), 0)

    def remove(self, point: ResumePoint) -> None:
        """The last point of the table takes its place."""
        last = self._points.pop()
        if last is not point:
            self._points[point.row] = last
            self._table[:, point.row] = self._table[:, last.row]
            last.row = point.row
        point.row = -1

    def describe(self, point: ResumePoint, saves: int, nbytes: int, branches: int = 0) -> None:
        """Sets the facts that depend on its neighbours."""
        self._table[_SAVES, point.row] = saves
        self._table[_NBYTES, point.row] = nbytes
        self._table[_BRANCHES, point.row] = branches

    def hit(self, point: ResumePoint, now: float) -> None:
        self._table[_HITS, point.row] += 1
        self._table[_LAST_USED, point.row] = now
        self._table[_STAMP, point.row] = self._policy.stamp()

    def hits(self, point: ResumePoint) -> int:
        return int(self._table[_HITS, point.row])

    def last_used(self, point: ResumePoint) -> float:
        return float(self._table[_LAST_USED, point.row])

    def set_last_used(self, point: ResumePoint, moment: float) -> None:
        self._table[_LAST_USED, point.row] = moment
        self.oldest = min(self.oldest, moment)

    def choose_victim(self, now: float, spared: Collection[ResumePoint], limit: Limit = NO_LIMIT) -> ResumePoint | None:
        """The point to evict, which the policy is told."""
        victim = self.lowest(now, spared, limit)
        if victim is None:
            return None
        self._policy.evicted(victim.rank)
        return victim.point

    def lowest(self, now: float, spared: Collection[ResumePoint], limit: Limit) -> Victim | None:
        """The point that is worth least, of those within the limit."""
        table = self._table[:, : len(self._points)]
        able = (table[_NBYTES] > 0) & (table[_NBYTES] <= limit.most_bytes)
        if limit.rested_since < now:
            able &= (table[_LAST_USED] <= limit.rested_since) | (table[_BRANCHES] == 1)
        if limit.unused_since < now and self._points:
            self.oldest = float(table[_LAST_USED].min())
            able &= table[_LAST_USED] <= limit.unused_since
        able[[point.row for point in spared if point.row >= 0]] = False
        rows = None if able.all() else np.flatnonzero(able)
        table = table if rows is None else table[:, rows]
        if table.shape[1] == 0:
            return None
        ranks = self._policy.rank(Candidates(now, *table))
        row = int(ranks.argmin())
        of_row = table[:, row]
        point = self._points[row if rows is None else rows[row]]
        return Victim(point, float(ranks[row]), bool(of_row[_BRANCHES] != 1), float(of_row[_LAST_USED]))
