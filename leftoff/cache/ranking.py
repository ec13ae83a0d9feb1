"""The resume points that a budget may evict, with the facts by which a policy ranks them.

What a point saves, and what its eviction frees, depends on its neighbours in the tree. So whoever changes the tree says
which points have changed, and their facts are determined again before the next choice.
"""

import math
from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np

from leftoff.cache.node import (
    Node,
    ResumePoint,
    freed_bytes,
    index_of,
    pages_up_to,
    point_before,
    points_after,
)
from leftoff.cache.policy import NO_LIMIT, Candidates, Limit, Policy

_POSITION, _SAVES, _NBYTES, _HITS, _LAST_USED, _STAMP, _BRANCHES = range(7)  # rows of the table, as in `Candidates`
_FIRST_CAPACITY = 256


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

    def __init__(self, policy: Policy, window_bytes: Callable[[ResumePoint], int] = lambda _: 0) -> None:
        """`window_bytes` tells how many bytes of window pages a point shares with no other."""
        self._policy = policy
        self._window_bytes = window_bytes
        self._changed: set[ResumePoint] = set()
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
        self._changed.discard(point)
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

    # --- what the facts depend on

    def changed(self, *points: ResumePoint) -> None:
        """Their facts are determined again before the next choice."""
        self._changed.update(points)

    def changed_around(self, point: ResumePoint) -> None:
        """A point that comes or goes changes what its neighbours are worth."""
        self.changed(point, *points_after(point.node, index_of(point)))
        if (before := point_before(point)) is not None:
            self.changed(before)

    def changed_beside(self, node: Node) -> None:
        """A second branch shares the pages before the fork, which were those of the first alone."""
        while node.parent is not None and node.parent.num_live_children == 1 and not node.parent.points:
            node = node.parent
        if node.parent is not None and node.parent.num_live_children == 2:
            self.changed(*points_after(node.parent, len(node.parent.points)))

    def _describe_anew(self, point: ResumePoint) -> None:
        before = point_before(point)
        start = before.position if before else 0
        node = point.node
        nbytes = point.nbytes + self._window_bytes(point)
        # a fork counts as one even after its branches were evicted: prompts were seen to share this prefix
        branches = 1 if node.points[-1] is not point else len(node.children) if node.num_live_children else 0
        if branches == 0:
            # at least 1: where points free nothing unless all of them go, one must still be the first
            nbytes = max(1, nbytes + freed_bytes(pages_up_to(point)))
            branches = point.num_sequences
        # a point that frees no bytes is never chosen
        self.describe(point, point.position - start, 0 if point.is_pinned else nbytes, branches)

    # --- use

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

    # --- choosing

    def choose_victim(self, now: float, spared: Collection[ResumePoint], limit: Limit = NO_LIMIT) -> ResumePoint | None:
        """The point to evict, which the policy is told."""
        victim = self.lowest(now, spared, limit)
        if victim is None:
            return None
        self._policy.evicted(victim.rank)
        return victim.point

    def lowest(self, now: float, spared: Collection[ResumePoint], limit: Limit) -> Victim | None:
        """The point that is worth least, of those within the limit."""
        for changed in self._changed:
            self._describe_anew(changed)
        self._changed.clear()
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
