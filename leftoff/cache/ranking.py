"""The candidates for eviction, kept as columns so that a policy can weigh ten thousand of them in one go."""

from collections.abc import Collection

import numpy as np

from leftoff.cache.entry import Entry
from leftoff.cache.policy import Candidates, Policy

_COLUMNS = ("position", "saves", "nbytes", "hits", "last_used", "stamp", "branches")
_FIRST_CAPACITY = 256


class Ranking:
    """One row per entry. Rows are reused; a row whose `nbytes` is 0 frees nothing and is never chosen."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._columns = {name: np.zeros(_FIRST_CAPACITY) for name in _COLUMNS}
        self._entries: list[Entry | None] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._entries) - len(self._free)

    def add(self, entry: Entry, now: float) -> None:
        entry.row = self._free.pop() if self._free else len(self._entries)
        if entry.row == len(self._entries):
            self._entries.append(entry)
            self._grow()
        self._entries[entry.row] = entry
        self._set(entry, position=entry.position, hits=0.0)
        self._use(entry, now)

    def remove(self, entry: Entry) -> None:
        self._set(entry, nbytes=0.0)
        self._entries[entry.row] = None
        self._free.append(entry.row)
        entry.row = -1

    def describe(self, entry: Entry, saves: int, nbytes: int, branches: int = 0) -> None:
        self._set(entry, saves=float(saves), nbytes=float(nbytes), branches=float(branches))

    def hit(self, entry: Entry, now: float) -> None:
        self._columns["hits"][entry.row] += 1
        self._use(entry, now)

    def hits(self, entry: Entry) -> int:
        return int(self._columns["hits"][entry.row])

    def last_used(self, entry: Entry) -> float:
        return float(self._columns["last_used"][entry.row])

    def set_last_used(self, entry: Entry, moment: float) -> None:
        self._set(entry, last_used=moment)

    def lowest(self, now: float, spared: Collection[Entry]) -> Entry | None:
        """The entry to evict next, if there is one."""
        size = len(self._entries)
        rows = np.flatnonzero(self._columns["nbytes"][:size])
        if spared:
            rows = np.setdiff1d(rows, [entry.row for entry in spared], assume_unique=True)
        if rows.size == 0:
            return None
        columns = {name: column[rows] for name, column in self._columns.items()}
        ranks = self._policy.rank(Candidates(**columns, now=now))
        lowest = int(ranks.argmin())
        self._policy.evicted(float(ranks[lowest]))
        return self._entries[int(rows[lowest])]

    def _use(self, entry: Entry, now: float) -> None:
        self._set(entry, last_used=now, stamp=self._policy.stamp())

    def _set(self, entry: Entry, **values: float) -> None:
        for name, value in values.items():
            self._columns[name][entry.row] = value

    def _grow(self) -> None:
        capacity = self._columns["nbytes"].size
        if len(self._entries) > capacity:
            self._columns = {name: np.resize(column, 2 * capacity) for name, column in self._columns.items()}
            for column in self._columns.values():
                column[capacity:] = 0
