"""Estimates how long a replica would take to the first token of a prompt, by the arithmetic of the cache's own plans.

    first token = max(queue, fetching) + waking + loading + prefill of what is missing

A model that sleeps is woken: its weights are loaded, once others have made way for it. Fetching from a disk or from the
store goes on while other requests run, so the queue hides it; loading into the engine and prefill are the engine's own
work. The router and the simulation both call this module.

It knows no tokens and no network: a prompt is its length, and the resume points that were found on its path.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from leftoff.cluster.replica import ReplicaCosts

_OTHERS = 1.0  # how much the wait of requests that come later counts, beside that of this one


@dataclass(frozen=True, slots=True)
class FoundPoint:
    """A resume point on a prompt's path, and the bytes to move before the engine can go on from there.

    Without any, a sequence of the engine ends there, or will once a request in flight was read.
    """

    position: int
    load_bytes: int = 0  # into the engine, wherever they come from
    disk_bytes: int = 0  # of them, to fetch from the replica's disk
    store_bytes: int = 0  # of them, to fetch from the shared store
    store_blobs: int = 0


@dataclass(frozen=True, slots=True)
class Estimate:
    """The time to the first token on one replica, and where it would resume the prompt."""

    queue_ms: float
    fetch_ms: float
    load_ms: float
    read_ms: float
    resume: int = 0
    held: int = 0  # the deepest position from which it could resume without the shared store
    wake_ms: float = 0.0

    @property
    def work_ms(self) -> float:
        """How long the engine is busy with the prompt, and so how much longer the replica's queue gets."""
        return self.wake_ms + self.load_ms + self.read_ms

    @property
    def first_token_ms(self) -> float:
        return max(self.queue_ms, self.fetch_ms) + self.work_ms

    @property
    def price_ms(self) -> float:
        """What replicas are compared by: the wait of this request, and of later ones that will queue behind its work.

        So no second replica prefills a prompt to gain a little over waiting for the one that holds its state.
        """
        return self.first_token_ms + _OTHERS * self.work_ms


def estimate(
    length: int, found: Iterable[FoundPoint], costs: ReplicaCosts, queue_ms: float = 0.0, wake_ms: float = 0.0
) -> Estimate:
    """The quickest way for one replica to the first token of a prompt of `length` tokens."""
    points = sorted(found, key=attrgetter("position"), reverse=True)
    held = next((point.position for point in points if not point.store_bytes), 0)
    best = Estimate(queue_ms, 0.0, 0.0, costs.prefill_ms(length), 0, held, wake_ms)
    for point in points:
        read_ms = costs.prefill_ms(length - point.position)
        if queue_ms + wake_ms + read_ms >= best.first_token_ms:
            break  # the deepest come first: what is left to prefill only grows
        fetch_ms = costs.fetch_ms(point.disk_bytes, point.store_bytes, point.store_blobs)
        load_ms = costs.load_ms(point.load_bytes)
        candidate = Estimate(queue_ms, fetch_ms, load_ms, read_ms, point.position, held, wake_ms)
        if candidate.first_token_ms < best.first_token_ms:
            best = candidate
    return best


def beside(local: Sequence[FoundPoint], stored: Iterable[FoundPoint]) -> list[FoundPoint]:
    """The resume points in the shared store that a replica does not hold itself.

    Of the pages that lead to a point in the store, those that also lead to the deepest own point are not fetched.
    """
    deepest = max((point.position for point in local), default=0)
    return [
        FoundPoint(
            point.position,
            point.load_bytes,
            store_bytes=math.ceil(point.store_bytes * (1 - deepest / point.position)),
            store_blobs=math.ceil(point.store_blobs * (1 - deepest / point.position)),
        )
        for point in stored
        if point.position > deepest
    ]
