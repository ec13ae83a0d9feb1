"""The candidates for eviction, kept as columns so that a policy can weigh ten thousand of them in one go."""

import math
from collections.abc import Collection

import numpy as np

from leftoff.cache.policy import Candidates, Policy
from leftoff.cache.resume_point import ResumePoint

_POSITION, _SAVES, _NBYTES, _HITS, _LAST_USED, _STAMP, _BRANCHES = range(7)  # as in `Candidates`
_FIRST_CAPACITY = 256


class Ranking:
    """One column of a table per point, without gaps. One whose `nbytes` is 0 frees nothing and is never chosen."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._table = np.zeros((7, _FIRST_CAPACITY))
        self._points: list[ResumePoint] = []
        self.oldest = math.inf  # no point was last used before, and perhaps none just then

    def __len__(self) -> int:
        return len(self._points)

    def add(self, point: ResumePoint, now: float) -> None:
        point.row = len(self._points)
        self._points.append(point)
        self.oldest = min(self.oldest, now)
        if point.row == self._table.shape[1]:
            self._table = np.concatenate((self._table, np.zeros_like(self._table)), axis=1)
        self._table[:, point.row] = (point.position, 0, 0, 0, now, self._policy.stamp(), 0)

    def remove(self, point: ResumePoint) -> None:
        """The last takes its place."""
        last = self._points.pop()
        if last is not point:
            self._points[point.row] = last
            self._table[:, point.row] = self._table[:, last.row]
            last.row = point.row
        point.row = -1

    def describe(self, point: ResumePoint, saves: int, nbytes: int, branches: int = 0) -> None:
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

    def lowest(self, now: float, spared: Collection[ResumePoint], unused_since: float = math.inf) -> ResumePoint | None:
        """The point to evict next, of those that were not used after a moment, if there is one."""
        table = self._table[:, : len(self._points)]
        able = table[_NBYTES] > 0
        if unused_since < now and self._points:
            self.oldest = float(table[_LAST_USED].min())
            able &= table[_LAST_USED] <= unused_since
        able[[point.row for point in spared if point.row >= 0]] = False
        rows = None if able.all() else np.flatnonzero(able)
        table = table if rows is None else table[:, rows]
        if table.shape[1] == 0:
            return None
        ranks = self._policy.rank(Candidates(now, *table))
        lowest = int(ranks.argmin())
        self._policy.evicted(float(ranks[lowest]))
        return self._points[lowest if rows is None else rows[lowest]]
