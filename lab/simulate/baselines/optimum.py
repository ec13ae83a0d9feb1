"""The limit: no scheme can read fewer tokens, since this one knows the future and keeps no states at all.

Belady's rule on blocks: what is used again latest goes first, and what is never used again is not kept. With blocks of
one size that is the best there is for attention alone; a hybrid model needs states beside it, so nothing can reach it.
Blocks with the same next use are counted together: a prefix is never used again later than what follows on it.
"""

import heapq
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from lab.simulate.llm import Llm
from lab.simulate.scheme import Budget, Served
from lab.simulate.trace import Request, Trace
from leftoff.types import Tokens

_NEVER = -1

NextUses = list[tuple[int, int]]  # for each later request: how many blocks it is the next one to use


def next_uses(trace: Trace) -> list[NextUses]:
    """For each request, who uses its blocks next."""
    following = np.full(trace.num_ids, _NEVER, np.int64)
    uses: list[NextUses] = []
    for index in reversed(range(len(trace.requests))):
        blocks = trace.requests[index].blocks()
        coming = following[blocks]
        cuts = (0, *(np.flatnonzero(np.diff(coming)) + 1).tolist(), blocks.size)
        uses.append([(int(coming[start]), end - start) for start, end in pairwise(cuts) if coming[start] != _NEVER])
        following[blocks] = index
    return uses[::-1]


class Optimum:
    """Implements `Scheme`, for the requests of one trace in their order."""

    def __init__(self, llm: Llm, trace: Trace, budget: Budget) -> None:
        self._cell_bytes = llm.bytes_per_token * trace.block_tokens
        self._capacity = budget.nbytes // self._cell_bytes
        self._uses: Sequence[NextUses] = next_uses(trace)
        self._held: dict[int, int] = {}  # blocks, by the request that uses them next
        self._latest: list[int] = []
        self._num_held = 0
        self._now = 0

    @property
    def held_bytes(self) -> int:
        return min(self._num_held, self._capacity) * self._cell_bytes

    def serve(self, request: Request, blocks: Tokens) -> Served:  # noqa: ARG002
        resumed = self._held.pop(self._now, 0)
        self._num_held -= resumed
        self._shrink()  # what runs now lies in the engine, and leaves it only when the next one begins
        for coming, num_blocks in self._uses[self._now]:
            if coming not in self._held:
                heapq.heappush(self._latest, -coming)
            self._held[coming] = self._held.get(coming, 0) + num_blocks
            self._num_held += num_blocks
        self._now += 1
        return Served(resumed, resumed * self._cell_bytes)

    def _shrink(self) -> None:
        while self._num_held > self._capacity:
            latest = -self._latest[0]
            gone = min(self._num_held - self._capacity, self._held.get(latest, 0))
            self._num_held -= gone
            if gone == self._held.get(latest, 0):
                self._held.pop(latest, None)
                heapq.heappop(self._latest)
            else:
                self._held[latest] -= gone
