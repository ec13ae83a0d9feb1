"""The candidates for eviction, kept as columns so that a policy can weigh ten thousand of them in one go."""

import math
from collections.abc import Collection

import numpy as np

from leftoff.cache.entry import Entry
from leftoff.cache.policy import Candidates, Policy

_POSITION, _SAVES, _NBYTES, _HITS, _LAST_USED, _STAMP, _BRANCHES = range(7)  # as in `Candidates`
_FIRST_CAPACITY = 256


class Ranking:
    """One column of a table per entry, without gaps. One whose `nbytes` is 0 frees nothing and is never chosen."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._table = np.zeros((7, _FIRST_CAPACITY))
        self._entries: list[Entry] = []
        self.oldest = math.inf  # no entry was last used before, and perhaps none just then

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Entry, now: float) -> None:
        entry.row = len(self._entries)
        self._entries.append(entry)
        self.oldest = min(self.oldest, now)
        if entry.row == self._table.shape[1]:
            self._table = np.concatenate((self._table, np.zeros_like(self._table)), axis=1)
        self._table[:, entry.row] = (entry.position, 0, 0, 0, now, self._policy.stamp(), 0)

    def remove(self, entry: Entry) -> None:
        """The last takes its place."""
        last = self._entries.pop()
        if last is not entry:
            self._entries[entry.row] = last
            self._table[:, entry.row] = self._table[:, last.row]
            last.row = entry.row
        entry.row = -1

    def describe(self, entry: Entry, saves: int, nbytes: int, branches: int = 0) -> None:
        self._table[_SAVES, entry.row] = saves
        self._table[_NBYTES, entry.row] = nbytes
        self._table[_BRANCHES, entry.row] = branches

    def hit(self, entry: Entry, now: float) -> None:
        self._table[_HITS, entry.row] += 1
        self._table[_LAST_USED, entry.row] = now
        self._table[_STAMP, entry.row] = self._policy.stamp()

    def hits(self, entry: Entry) -> int:
        return int(self._table[_HITS, entry.row])

    def last_used(self, entry: Entry) -> float:
        return float(self._table[_LAST_USED, entry.row])

    def set_last_used(self, entry: Entry, moment: float) -> None:
        self._table[_LAST_USED, entry.row] = moment
        self.oldest = min(self.oldest, moment)

    def lowest(self, now: float, spared: Collection[Entry], unused_since: float = math.inf) -> Entry | None:
        """The entry to evict next, of those that were not used after a moment, if there is one."""
        table = self._table[:, : len(self._entries)]
        able = table[_NBYTES] > 0
        if unused_since < now and self._entries:
            self.oldest = float(table[_LAST_USED].min())
            able &= table[_LAST_USED] <= unused_since
        able[[entry.row for entry in spared if entry.row >= 0]] = False
        rows = None if able.all() else np.flatnonzero(able)
        table = table if rows is None else table[:, rows]
        if table.shape[1] == 0:
            return None
        ranks = self._policy.rank(Candidates(now, *table))
        lowest = int(ranks.argmin())
        self._policy.evicted(float(ranks[lowest]))
        return self._entries[lowest if rows is None else rows[lowest]]
