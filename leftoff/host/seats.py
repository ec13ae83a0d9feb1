"""Which of several models are loaded: as many as the machine's memory holds, and the others in their turn.

A model that is asked while there is no room for it waits until enough of the others sleep. Idle ones do so at once, the
longest idle first. One that is busy answers what has waited while it was loaded, and what comes until it was awake for
as long as a swap takes: at most half of the time goes by loading, and a request waits for one turn of each other model.
"""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from leftoff.host.weights import read_weights
from leftoff.scheduler.gate import Clock, Gate, NoSeatError, Readiness

_MIN_TURN_S = 1.0
_TOLD_S = 0.1  # who makes way sooner than that was not busy


class Seats:
    """Knows which models are loaded. Thread-safe."""

    def __init__(
        self, room: Mapping[str, int] | None = None, most: float = math.inf, clock: Clock = time.monotonic
    ) -> None:
        """There is `room` for so many bytes on each device, and for `most` models."""
        self.clock = clock
        self.room = room or {}
        self._most = most
        self._all: list[Seat] = []
        self._lock = threading.Lock()

    def add(
        self, needs: Mapping[str, int] | None = None, *, sleep_after_s: float = math.inf, pinned: bool = False
    ) -> "Seat":
        """The seat of a model that takes so many bytes on each device. One that is pinned makes way for no other."""
        seat = Seat(self, needs or {}, sleep_after_s, pinned=pinned)
        with self._lock:
            self._all.append(seat)
        return seat

    def take(self, seat: "Seat") -> bool:
        """Lets a model be loaded, or go on; False if it has to wait."""
        with self._lock:
            now = self.clock()
            if seat.is_taken:
                is_over = self._is_turn_over(seat, now)
                seat.idle_since = seat.idle_since if is_over else None
                return not is_over
            self._refuse_hopeless(seat)
            if seat.asked_at is None:
                seat.asked_at, seat.waited_for = now, {}
            loaded = self._loaded
            if seat is self._next and self._fits(seat, loaded):
                seat.is_taken, seat.has_served, seat.taken_at = True, False, now
                seat.asked_at = seat.idle_since = None
                return True
        for other in loaded:  # an idle one then sees that it is in the way
            other.notify()
        return False

    def blocks(self, seat: "Seat") -> bool:
        """Whether another model waits for memory that this one may have to give."""
        with self._lock:
            return self._blocks(seat)

    def is_in_the_way(self, seat: "Seat", idle_s: float) -> bool:
        """Whether a model that is idle must go for the one that waits."""
        with self._lock:
            now = self.clock()
            # one that was just loaded has its turn, even if nothing has come of what it was loaded for
            is_done = not seat.num_guests and (seat.has_served or self._is_turn_over(seat, now))
            seat.idle_since = now - idle_s if is_done else None
            wanted, staying = self._next, self._loaded
            idle = [other for other in staying if other.idle_since is not None and not other.pinned]
            for other in sorted(idle, key=lambda other: other.idle_since or 0.0):
                if wanted is None or self._fits(wanted, staying):
                    return False
                if other is seat:
                    return True
                staying.remove(other)
            return False

    def count_guest(self, seat: "Seat", change: int) -> None:
        with self._lock:
            seat.num_guests += change

    def withdraw(self, seat: "Seat") -> None:
        """The model is not wanted any more; others that have waited behind it may be next."""
        with self._lock:
            seat.asked_at = None
        self._notify_waiting()

    def leave(self, seat: "Seat") -> None:
        """The model is not loaded any more, or could not be."""
        with self._lock:
            now, seat.is_taken, seat.asked_at = self.clock(), False, None
            for other in self._waiting:
                if other.asked_at is not None and now - other.asked_at >= _TOLD_S:
                    other.waited_for[seat.name] = None
        self._notify_waiting()

    def readiness(self, seat: "Seat") -> Readiness:
        """Of a model that was never loaded, the time is reckoned by its bytes from that of the others."""
        with self._lock:
            known = [other for other in self._all if other.load_s]
            load_s = seat.load_s or max((other.load_s * _ratio(seat, other) for other in known), default=0.0)
            has_room = seat.is_taken or self._fits(seat, self._loaded)
            return Readiness(is_awake=seat.is_awake, load_ms=1000 * load_s, has_room=has_room)

    def _notify_waiting(self) -> None:
        with self._lock:
            waiting = self._waiting
        for other in waiting:
            other.notify()

    # --- with the lock held

    @property
    def _loaded(self) -> list["Seat"]:
        return [seat for seat in self._all if seat.is_taken]

    @property
    def _next(self) -> "Seat | None":
        """The one that has waited longest."""
        return min(self._waiting, key=lambda seat: seat.asked_at or 0.0, default=None)

    @property
    def _waiting(self) -> list["Seat"]:
        return [seat for seat in self._all if seat.asked_at is not None]

    def _fits(self, seat: "Seat", loaded: list["Seat"]) -> bool:
        if not loaded:  # whether there is room for it at all, loading tells
            return True
        needs = sum((Counter(other.needs) for other in (*loaded, seat)), Counter[str]())
        return len(loaded) < self._most and all(needs[device] <= nbytes for device, nbytes in self.room.items())

    def _refuse_hopeless(self, seat: "Seat") -> None:
        pinned = [other for other in self._loaded if other.pinned]
        if not self._fits(seat, pinned):
            names = ", ".join(other.name for other in pinned)
            raise NoSeatError(f"no room for {seat.name} beside {names}, pinned: unload it, or pin fewer models")

    def _blocks(self, seat: "Seat") -> bool:
        wanted = self._next
        return wanted is not None and not seat.pinned and not self._fits(wanted, self._loaded)

    def _is_turn_over(self, seat: "Seat", now: float) -> bool:
        wanted = self._next
        if wanted is None or not self._blocks(seat):
            return False
        is_awake = seat.woke_at >= seat.taken_at
        return is_awake and now - seat.woke_at >= max(_MIN_TURN_S, (seat.load_s + wanted.load_s) / 2)


class Seat(Gate):
    """The right of one model to be loaded among others: the gate of its scheduler."""

    def __init__(self, seats: Seats, needs: Mapping[str, int], sleep_after_s: float, *, pinned: bool) -> None:
        super().__init__(math.inf if pinned else sleep_after_s, seats.clock)
        self.needs = needs
        self.pinned = pinned
        self.notify: Callable[[], None] = lambda: None  # its scheduler, that it should ask again
        self.is_taken = self.is_awake = False  # it has its seat before it is loaded
        self.has_served = False  # something has begun since it was loaded
        self.num_guests = 0
        self.taken_at = 0.0
        self.asked_at: float | None = None  # while it waits
        self.waited_for: dict[str, None] = {}  # the names of those that it has waited for, the last time
        self.idle_since: float | None = None
        self.path: Path | None = None  # of its weights, where that is known
        self._read_at: float | None = None
        self._seats = seats

    def admits(self) -> bool:
        if self._seats.take(self):
            return True
        asked_at = self.asked_at
        if self.path is not None and asked_at is not None and asked_at != self._read_at:  # once while it waits
            self._read_at = asked_at
            read_weights(self.path, lambda: self.asked_at == asked_at)
        return False

    def withdraw(self) -> None:
        self._seats.withdraw(self)

    def blocks(self) -> bool:
        return self._seats.blocks(self)

    @contextmanager
    def guest(self) -> Iterator[None]:
        """Of a request that waits until the model is open, and then until its prompt is read and submitted.

        The model does not sleep before that: else the request would wait for a second turn of the others. Any thread.
        """
        self._seats.count_guest(self, 1)
        try:
            yield
        finally:
            self._seats.count_guest(self, -1)
            self.notify()

    def gives_way(self, idle_s: float) -> bool:
        is_in_the_way = self._seats.is_in_the_way(self, idle_s)
        return not self.num_guests and (is_in_the_way or super().gives_way(idle_s))

    def slept(self) -> None:
        super().slept()
        self._seats.leave(self)

    def began(self, waited_s: float, reused_tokens: int) -> str:
        self.has_served = True
        return super().began(waited_s, reused_tokens)

    def readiness(self) -> Readiness:
        return self._seats.readiness(self)

    def _reason(self) -> str:
        names = [*self.waited_for]
        busy = f", {' and '.join(names)} {'was' if len(names) == 1 else 'were'} busy" if names else ""
        return super()._reason() + busy


def _ratio(seat: Seat, other: Seat) -> float:
    """How many times the bytes of another model one has; 1 where they are not known."""
    ours, theirs = sum(seat.needs.values()), sum(other.needs.values())
    return ours / theirs if ours and theirs else 1.0
