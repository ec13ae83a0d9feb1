"""So many bytes of RAM or disk, shared by the tiers of all models: value per byte decides whose are evicted.

A model's trees belong to its engine's thread, which holds the model's lock while it uses them, and lets it go while the
engine computes, loads or waits. Then another model's thread may evict there. It holds one such lock at a time: its own
it lets go before it waits for another, so that no two threads can wait for each other.

    thread of A, in make_room:   ── lock A ──┐           ┌── lock B: evict ──┐           ┌── lock A: add ──
                                             └─ let go ──┘                   └─ let go ──┘
"""

import math
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from leftoff.cache.policy import Limit
from leftoff.cache.wear import Wear

_IN_USE_S = 300.0  # since its last use, a conversation outlasts whatever another model was not asked for


class TreeLock:
    """Held by the thread that uses a model's trees. Bytes that were reserved and not added are free on release."""

    def __init__(self) -> None:
        self.holders: list[Holder] = []  # of these trees
        self._lock = threading.Lock()

    def acquire(self) -> None:
        self._lock.acquire()

    def release(self) -> None:
        for holder in self.holders:
            holder.reserved_bytes = 0
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    @contextmanager
    def let_go(self) -> Iterator[None]:
        """While the engine computes or loads, other models may evict from the trees."""
        was_held = self._lock.locked()  # else there are no other models
        if was_held:
            self.release()
        try:
            yield
        finally:
            if was_held:
                self.acquire()


class Offer(NamedTuple):
    """What a holder would evict next: the milliseconds that keeping it is expected to save, per byte."""

    worth: float
    is_end: bool  # of a conversation, or a fork: not one of the points between, which are spared easily
    last_used: float


class Holder(Protocol):
    """Holds bytes of a capacity: a tier of a model, or what a model that is not open has left on disk.

    `offer` and `evict_one` are called with the lock held, by any model's thread.
    """

    lock: TreeLock
    used_bytes: int
    reserved_bytes: int  # for what is added next, by the thread that holds the lock

    @property
    def oldest(self) -> float:
        """Nothing was used last before this moment."""
        ...

    def offer(self, limit: Limit) -> Offer | None: ...

    def evict_one(self, limit: Limit) -> bool:
        """Evicts what it would offer. False if that is nothing."""
        ...


class Lump:
    """Bytes beside those of the tiers, such as embeddings of pictures: their owner alone evicts them."""

    def __init__(self) -> None:
        self.lock = TreeLock()
        self.used_bytes = self.reserved_bytes = 0
        self.oldest = math.inf

    def count(self, nbytes: int) -> None:
        """Sets how many bytes there are now."""
        self.used_bytes = nbytes

    def offer(self, _: Limit) -> None:
        """Nothing."""

    def evict_one(self, _: Limit) -> bool:
        return False


class Capacity:
    """Counts what its holders have. Together they never have more, but for those that join with something."""

    def __init__(self, nbytes: int, *holders: Holder) -> None:
        self.nbytes = nbytes
        self.most_bytes = 0  # that were ever kept at one time
        self.wear: Wear | None = None  # of a medium that wears: little of it may be replaced
        self.beside: Callable[[], int] = lambda: 0  # bytes that are taken beside those of the holders
        self._holders = holders
        self._lock = threading.Lock()

    @property
    def used_bytes(self) -> int:
        return sum(holder.used_bytes for holder in self._holders)

    @property
    def free_bytes(self) -> int:
        return self.nbytes - self.beside() - sum(holder.used_bytes + holder.reserved_bytes for holder in self._holders)

    @property
    def oldest(self) -> float:
        return min((holder.oldest for holder in self._holders), default=math.inf)

    def join(self, *holders: Holder, instead_of: Iterable[Holder] = ()) -> None:
        """Counts these from now on, and no longer those whose bytes they have taken over."""
        with self._lock:
            gone = {*holders, *instead_of}
            self._holders = (*(each for each in self._holders if each not in gone), *holders)
            self.most_bytes = max(self.most_bytes, self.used_bytes)

    @property
    def num_holders(self) -> int:
        return len(self._holders)

    def claim(self, holder: Holder, nbytes: int) -> bool:
        """Reserves bytes that are free for what is added next. False if there are not so many."""
        with self._lock:
            holder.reserved_bytes = 0
            is_free = nbytes <= self.free_bytes
            holder.reserved_bytes = nbytes if is_free else 0
            return is_free

    def take(self, holder: Holder, nbytes: int) -> None:
        """Counts bytes that a holder has added, and frees their reservation."""
        with self._lock:
            holder.used_bytes += nbytes
            holder.reserved_bytes = max(0, holder.reserved_bytes - nbytes)
            self.most_bytes = max(self.most_bytes, self.used_bytes)

    # --- evicting

    def limit(self, now: float, last_used: float) -> Limit:
        """How much may be evicted from a medium that wears, and how old it must be, for data used at `last_used`."""
        assert self.wear is not None
        with self._lock:
            patience_s = self.wear.patience_s(self.most_bytes, now)
            return Limit(self.wear.left_bytes(self.most_bytes, now), min(now, last_used) - patience_s)

    def wear_by(self, nbytes: int, now: float) -> None:
        """Counts evicted bytes, if the medium wears."""
        if self.wear is not None:
            with self._lock:
                self.wear.evicted(nbytes, now)

    def evict_lowest(self, asking: Holder, now: float, limit: Limit) -> bool:
        """Evicts what is worth least of all that the limit allows. False if that is nothing.

        `asking` has its lock, and lets it go meanwhile: others may evict from it too.
        """
        if self._holders == (asking,):
            return asking.evict_one(limit)
        asking.lock.release()
        try:
            return self._evict_anywhere(now, limit)
        finally:
            asking.lock.acquire()

    def _evict_anywhere(self, now: float, limit: Limit) -> bool:
        while offers := _offers(self._holders, limit):
            chosen, offer = min(offers.items(), key=lambda pair: pair[1].worth)
            which = limit
            if offer.is_end and offer.last_used > now - _IN_USE_S:
                # A slow model's tokens are worth more: all the same it leaves others the room for what they are asked.
                rested = limit._replace(unused_since=min(limit.unused_since, now - _IN_USE_S))
                others = _offers((holder for holder in self._holders if holder is not chosen), rested)
                if others:
                    which, chosen = rested, min(others, key=lambda holder: others[holder].worth)
            with chosen.lock:
                if chosen.evict_one(which):
                    return True
        return False


def _offers(holders: Iterable[Holder], limit: Limit) -> dict[Holder, Offer]:
    offers: dict[Holder, Offer] = {}
    for holder in holders:
        with holder.lock:
            if (offer := holder.offer(limit)) is not None:
                offers[holder] = offer
    return offers
