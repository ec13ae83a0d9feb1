"""Routers to compare: each is told of one request after the other, and names a replica."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lab.simulate.fleet.replica import Replica
from lab.simulate.fleet.store import SharedStore
from lab.simulate.trace import Request
from leftoff.types import Tokens

_MATCH_RATE = 0.1


class Router(Protocol):
    """Belongs to one run."""

    def choose(self, request: Request, blocks: Tokens, now_s: float) -> int: ...


class RoundRobin:
    """One after the other."""

    def __init__(self, replicas: Sequence[Replica], num_ids: int, store: SharedStore | None) -> None:  # noqa: ARG002
        self._num_replicas = len(replicas)
        self._next = -1

    def choose(self, request: Request, blocks: Tokens, now_s: float) -> int:  # noqa: ARG002
        self._next += 1
        return self._next % self._num_replicas


class Affinity:
    """Every session has its replica, by a hash of its name."""

    def __init__(self, replicas: Sequence[Replica], num_ids: int, store: SharedStore | None) -> None:  # noqa: ARG002
        self._num_replicas = len(replicas)

    def choose(self, request: Request, blocks: Tokens, now_s: float) -> int:  # noqa: ARG002
        return request.session * 2654435761 % (1 << 32) * self._num_replicas >> 32


class PrefixText:
    """Ray's `PrefixCacheAffinityRouter`: it remembers the text that it sent to each replica, and nothing of its state.

    It takes the replicas that were sent the longest prefix, and of several the one with the shortest queue; below a
    tenth of the prompt, those that were sent the least. If queues differ by more than `imbalance` requests (Ray's
    default: they never do), the shorter of two at random.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        num_ids: int,
        store: SharedStore | None,  # noqa: ARG002
        imbalance: float = float("inf"),
    ) -> None:
        self._replicas = replicas
        self._imbalance = imbalance
        self._sent: npt.NDArray[np.uint64] = np.zeros(num_ids, np.uint64)  # a bit for each replica
        self._num_sent = [0] * len(replicas)
        self._rng = np.random.default_rng(7)

    def choose(self, request: Request, blocks: Tokens, now_s: float) -> int:  # noqa: ARG002
        lengths = [replica.num_requests for replica in self._replicas]
        if max(lengths) - min(lengths) > self._imbalance:
            candidates = [int(self._rng.integers(len(lengths))) for _ in range(2)]
        else:
            candidates = self._matching(blocks)
        chosen = min(candidates, key=lengths.__getitem__)
        self._insert(blocks, chosen)
        return chosen

    def _matching(self, blocks: Tokens) -> list[int]:
        sent = self._sent[blocks]
        known = int(np.count_nonzero(sent))
        if known < _MATCH_RATE * blocks.size:
            return [n for n, num in enumerate(self._num_sent) if num == min(self._num_sent)]
        mask = int(sent[known - 1])
        return [n for n in range(len(self._replicas)) if mask >> n & 1]

    def _insert(self, blocks: Tokens, chosen: int) -> None:
        bit = np.uint64(1 << chosen)
        self._num_sent[chosen] += int(np.count_nonzero(self._sent[blocks] & bit == 0))
        self._sent[blocks] |= bit


class Leftoff:
    """The lowest price by `leftoff.cluster.score`; among equals, the replica that was given the least work so far."""

    def __init__(self, replicas: Sequence[Replica], num_ids: int, store: SharedStore | None) -> None:  # noqa: ARG002
        self._replicas = replicas
        self._store = store
        self._given_ms = [0.0] * len(replicas)

    def choose(self, request: Request, blocks: Tokens, now_s: float) -> int:  # noqa: ARG002
        in_store = self._store.deepest(blocks) if self._store is not None else 0
        estimates = [replica.estimate(blocks, now_s, in_store) for replica in self._replicas]
        chosen = min(range(len(estimates)), key=lambda n: (estimates[n].price_ms, self._given_ms[n]))
        self._given_ms[chosen] += estimates[chosen].work_ms
        return chosen


def _prefix_text_10(replicas: Sequence[Replica], num_ids: int, store: SharedStore | None) -> Router:
    return PrefixText(replicas, num_ids, store, imbalance=10)


ROUTERS: dict[str, Callable[[Sequence[Replica], int, SharedStore | None], Router]] = {
    "round-robin": RoundRobin,
    "affinity": Affinity,
    "prefix-text": PrefixText,
    "prefix-text-10": _prefix_text_10,
    "leftoff": Leftoff,
}
