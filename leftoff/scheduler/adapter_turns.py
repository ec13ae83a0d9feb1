"""Whose turn it is, of runs that are read with different sets of adapters: a batch is decoded with one set.

To switch from one set to another costs a new graph, as long as a few steps take, so a set has the engine for a turn
of many steps. The set that has waited longest is next: with n sets, none waits for more than n - 1 turns.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from leftoff.adapters import NO_ADAPTERS, AdapterSet

_MOST_OVERHEAD = 0.1  # of the time, for switches
_SHORTEST_S, _LONGEST_S = 0.05, 1.0
_WEIGHT = 0.3  # of the newest measurement


class Adapted(Protocol):
    """Anything that is decoded with a set of adapters, such as a run."""

    @property
    def adapters(self) -> AdapterSet: ...


One = TypeVar("One", bound=Adapted)


class AdapterTurns:
    """Groups runs by their sets, in the order in which they are served."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.adapters: AdapterSet = NO_ADAPTERS  # of the last batch
        self.has_switched = False  # before that
        self._clock = clock
        self._began = clock()
        self._served: dict[AdapterSet, float] = {}  # when each of those that run was served last, or came
        self._switch_s = 0.01

    @property
    def turn_s(self) -> float:
        return min(_LONGEST_S, max(_SHORTEST_S, self._switch_s / _MOST_OVERHEAD))

    def groups(self, runs: Sequence[One]) -> Iterator[list[One]]:
        """The runs of each set: the set whose turn it is, then the others, in case that none of those can go on."""
        groups: dict[AdapterSet, list[One]] = {}
        for run in runs:
            groups.setdefault(run.adapters, []).append(run)
        now = self._clock()
        self._served = {adapters: self._served.get(adapters, now) for adapters in groups}
        is_over = now - self._began >= self.turn_s
        in_order = sorted(groups, key=lambda each: (is_over == (each == self.adapters), self._served[each]))
        return (groups[adapters] for adapters in in_order)

    def serve(self, adapters: AdapterSet) -> None:
        """A batch is decoded with this set now."""
        now, self.has_switched = self._clock(), adapters != self.adapters
        if self.has_switched:
            self.adapters, self._began = adapters, now
        self._served[adapters] = now

    def saw_switch(self, ms: float) -> None:
        """The first batch of a turn took `ms` longer than another one."""
        self._switch_s += _WEIGHT * (max(0.0, ms) / 1000 - self._switch_s)
