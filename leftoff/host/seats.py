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
    """The seats of all models of this machine, and the room for them. Whatever changes a seat holds `lock`."""

    def __init__(
        self, room: Mapping[str, int] | None = None, most: float = math.inf, clock: Clock = time.monotonic
    ) -> None:
        """There is `room` for so many bytes on each device, and for `most` models."""
        self.clock = clock
        self.room = room or {}
        self.all: list[Seat] = []
        self.lock = threading.Lock()
        self.most = most

    def add(
        self, needs: Mapping[str, int] | None = None, *, sleep_after_s: float = math.inf, pinned: bool = False
    ) -> "Seat":
        """The seat of a model that takes so many bytes on each device. One that is pinned makes way for no other."""
        seat = Seat(self, needs or {}, sleep_after_s, pinned=pinned)
        with self.lock:
            self.all.append(seat)
        return seat

    def notify_all(self) -> None:
        """Has all schedulers look again: one waits, or begins nothing more as another does. Called without the lock."""
        for seat in [*self.all]:
            seat.notify()

    # --- with the lock held

    @property
    def loaded(self) -> list["Seat"]:
        return [seat for seat in self.all if seat.is_taken]

    @property
    def waiting(self) -> list["Seat"]:
        return [seat for seat in self.all if seat.asked_at is not None]

    @property
    def next(self) -> "Seat | None":
        """The one that has waited longest."""
        return min(self.waiting, key=lambda seat: seat.asked_at or 0.0, default=None)

    def fits(self, seat: "Seat", loaded: list["Seat"]) -> bool:
        if not loaded:  # whether there is room for it at all, loading tells
            return True
        needs = sum((Counter(other.needs) for other in (*loaded, seat)), Counter[str]())
        return len(loaded) < self.most and all(needs[device] <= nbytes for device, nbytes in self.room.items())


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
        self.waited_for: dict[str, float] = {}  # the last time: who has made way for it when, by name
        self.idle_since: float | None = None
        self.path: Path | None = None  # of its weights, where that is known
        self._read_at: float | None = None
        self._seats = seats

    def admits(self) -> bool:
        with self._seats.lock:
            if self.is_taken:
                return self._goes_on()
            loaded = self._seats.loaded
            if self._takes_room(loaded):
                return True
        for other in loaded:  # an idle one then sees that it is in the way
            other.notify()
        self._read_weights()
        return False

    def withdraw(self) -> None:
        """Others that have waited behind it may be next."""
        with self._seats.lock:
            self.asked_at = None
        self._seats.notify_all()

    def blocks(self) -> bool:
        with self._seats.lock:
            return self._holds_up(self._seats.next)

    @contextmanager
    def guest(self) -> Iterator[None]:
        """Counts a request that waits until the model is open, and then until its prompt is read and submitted.

        The model does not sleep before that: else the request would wait for a second turn of the others. Any thread.
        """
        with self._seats.lock:
            self.num_guests += 1
        try:
            yield
        finally:
            with self._seats.lock:
                self.num_guests -= 1
            self.notify()

    def gives_way(self, idle_s: float) -> bool:
        with self._seats.lock:
            is_in_the_way = self._is_in_the_way(idle_s)
        return not self.num_guests and (is_in_the_way or super().gives_way(idle_s))

    def slept(self) -> None:
        super().slept()
        with self._seats.lock:
            now, was_taken, self.is_taken, self.asked_at = self._clock(), self.is_taken, False, None
            for other in self._seats.waiting if was_taken else ():
                if other.asked_at is not None and now - other.asked_at >= _TOLD_S:
                    other.waited_for[self.name] = now
        self._seats.notify_all()

    def began(self, waited_s: float, reused_tokens: int) -> str:
        self.has_served = True
        return super().began(waited_s, reused_tokens)

    def readiness(self) -> Readiness:
        """The load time of a model that was never loaded is reckoned by its bytes from that of the others."""
        with self._seats.lock:
            known = [other for other in self._seats.all if other.load_s]
            load_s = self.load_s or max((other.load_s * _ratio(self, other) for other in known), default=0.0)
            has_room = self.is_taken or self._seats.fits(self, self._seats.loaded)
            return Readiness(is_awake=self.is_awake, load_ms=1000 * load_s, has_room=has_room)

    def _reason(self, came_at: float) -> str:
        names = [name for name, slept_at in self.waited_for.items() if slept_at > came_at]
        busy = f", {' and '.join(names)} {'was' if len(names) == 1 else 'were'} busy" if names else ""
        return super()._reason(came_at) + busy

    def _read_weights(self) -> None:
        """Has the page cache ready for the load; once while the model waits."""
        asked_at = self.asked_at
        if self.path is not None and asked_at is not None and asked_at != self._read_at:
            self._read_at = asked_at
            read_weights(self.path, lambda: self.asked_at == asked_at)

    # --- with the lock held

    def _goes_on(self) -> bool:
        """Whether a model that is loaded may begin something more."""
        if self._is_turn_over():
            return False
        self.idle_since = None
        return True

    def _takes_room(self, loaded: list["Seat"]) -> bool:
        """Takes the seat if there is room beside the others; else the model waits for it."""
        pinned = [other for other in loaded if other.pinned]
        if not self._seats.fits(self, pinned):
            names = ", ".join(other.name for other in pinned)
            way_out = "raise --models-max" if len(pinned) >= self._seats.most else "unload it"
            raise NoSeatError(f"no room for {self.name} beside {names}, pinned: {way_out}, or pin fewer models")
        now = self._clock()
        if self.asked_at is None:
            self.asked_at, self.waited_for = now, {}
        if self._seats.next is not self or not self._seats.fits(self, loaded):
            return False
        self.is_taken, self.has_served, self.taken_at = True, False, now
        self.asked_at = self.idle_since = None
        return True

    def _is_in_the_way(self, idle_s: float) -> bool:
        """Whether it is idle and must go for the one that waits."""
        # one that was just loaded has its turn, even if nothing has come of what it was loaded for
        is_done = not self.num_guests and (self.has_served or self._is_turn_over())
        self.idle_since = self._clock() - idle_s if is_done else None
        wanted, staying = self._seats.next, self._seats.loaded
        idle = [other for other in staying if other.idle_since is not None and not other.pinned]
        for other in sorted(idle, key=lambda other: other.idle_since or 0.0):
            if wanted is None or self._seats.fits(wanted, staying):
                return False
            if other is self:
                return True
            staying.remove(other)
        return False

    def _holds_up(self, wanted: "Seat | None") -> bool:
        """Whether another model waits for memory that this one may have to give."""
        return wanted is not None and not self.pinned and not self._seats.fits(wanted, self._seats.loaded)

    def _is_turn_over(self) -> bool:
        wanted = self._seats.next
        if wanted is None or not self._holds_up(wanted):
            return False
        is_awake = self.woke_at >= self.taken_at
        return is_awake and self._clock() - self.woke_at >= max(_MIN_TURN_S, (self.load_s + wanted.load_s) / 2)


def _ratio(seat: Seat, other: Seat) -> float:
    """How many times the bytes of another model one has; 1 where they are not known."""
    ours, theirs = sum(seat.needs.values()), sum(other.needs.values())
    return ours / theirs if ours and theirs else 1.0
