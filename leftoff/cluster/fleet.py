"""The replicas as a router sees them: their heartbeats, what they hold, and what it has sent to them itself.

A replica comes from the index, by its heartbeat, or from the command line, by its URL alone: such a one is asked for
its health, and what it holds is guessed from what was sent there.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from leftoff.cluster.chain import Chain
from leftoff.cluster.memory import Known
from leftoff.cluster.replica import EXPIRY_S, Delta, Held, Replica, ReplicaCosts, ReplicaState
from leftoff.cluster.roster import Work
from leftoff.cluster.score import Estimate, FoundPoint, beside, estimate
from leftoff.lru import LruCache

_MAX_SENT_KEYS = 20_000  # remembered for a replica that does not tell what it holds
_REST_S = 2.0  # how long a replica that refused a connection is left alone


@dataclass(eq=False)
class Flight:
    """A request that was sent and has not ended. `work_ms` is what its first token takes the engine, then 0."""

    keys: Sequence[bytes]
    work_ms: float


@dataclass(eq=False)
class ReplicaView:
    """One replica. `gone` is set when its heartbeat stops: requests that wait for it are sent elsewhere."""

    told: Replica
    clock: Callable[[], float] = time.monotonic
    linger_s: float = 3.0  # how long an ended request counts as read there: by then the replica has told what it kept
    held: dict[bytes, Held] = field(default_factory=dict)
    number: int | None = None  # of the last delta that was applied; None if what it holds is not known
    num_late: int = 0  # heartbeats in a row that told of later deltas
    seen_at: float = 0.0
    rests_until: float = 0.0
    flights: set[Flight] = field(default_factory=set)
    reading: Counter[bytes] = field(default_factory=Counter)  # keys of requests that are on their way
    sent: LruCache[bytes, bool] = field(default_factory=lambda: LruCache(max_entries=_MAX_SENT_KEYS))
    costs: ReplicaCosts = field(default_factory=ReplicaCosts)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    num_requests: int = 0
    num_failures: int = 0

    @property
    def id(self) -> str:
        return self.told.id

    @property
    def is_in_index(self) -> bool:
        """It has a heartbeat. Of others only the URL is known, which is their id."""
        return self.told.id != self.told.url

    @property
    def takes_requests(self) -> bool:
        return self.is_there and self.clock() >= self.rests_until

    @property
    def is_there(self) -> bool:
        """It wants requests, and its heartbeat has not stopped; it may rest after a failure."""
        return self.told.state is ReplicaState.READY and not self.gone.is_set()

    @property
    def is_full(self) -> bool:
        load = self.told.load
        return max(load.num_waiting, len(self.flights) - load.num_slots) >= max(1, load.most_waiting)

    @property
    def queue_ms(self) -> float:
        """How long a new request waits for its prefill: the larger of what the replica reports and what was sent to it.

        The heartbeat counts other routers' requests too, and is up to a second old; own requests count at once.
        """
        load, rates = self.told.load, self.told.rates
        age_ms = 1000 * max(0.0, self.clock() - self.seen_at)
        reading_ms = max(0.0, self.costs.prefill_ms(load.queued_tokens) - age_ms)
        own_ms = sum(flight.work_ms for flight in self.flights)
        num_ahead = max(load.num_running + load.num_waiting, len(self.flights)) + 1 - load.num_slots
        slots_ms = max(0, num_ahead) * rates.reply_tokens * rates.step_ms / max(1, load.num_slots)
        return max(reading_ms, own_ms) + slots_ms

    @property
    def work(self) -> Work:
        load, rates = self.told.load, self.told.rates
        return Work(len(self.flights), load.queued_tokens / rates.prefill_tokens_per_ms / 1000)

    def beat(self, told: Replica) -> None:
        """Takes in a heartbeat."""
        self.told, self.seen_at = told, self.clock()
        self.gone.clear()
        for name in told.rates.__struct_fields__:
            setattr(self.costs, name, getattr(told.rates, name))

    def apply(self, delta: Delta) -> bool:
        """Applies what has changed. False if something is missing before it: then all must be read anew."""
        if delta.is_whole:
            self.held.clear()
        elif self.number is None or delta.number > self.number + 1:
            return False
        elif delta.number <= self.number:
            return True
        for tag in delta.dropped:
            self.held.pop(tag, None)
        self.held.update((held.tag, held) for held in delta.kept)
        self.number = delta.number
        return True

    def replace_held(self, held: Iterable[Held], number: int) -> None:
        """Sets all that it holds, as it was after the delta of this number."""
        self.held = {each.tag: each for each in held}
        self.number = number

    # --- requests

    def estimate(self, chain: Chain, known: Known, stored: Sequence[FoundPoint] = ()) -> Estimate:
        """Its time to the first token, by what it holds, is about to hold, and can fetch from the store."""
        local = [
            FoundPoint(held.end, held.ram_bytes + held.disk_bytes, held.disk_bytes)
            for place in known.places
            if (held := self.held.get(place.tag)) is not None
        ]
        local += self._on_the_way(chain, known)
        more = beside(local, stored) if self.told.has_store else []
        return estimate(known.length, local + more, self.costs, self.queue_ms)

    def _on_the_way(self, chain: Chain, known: Known) -> list[FoundPoint]:
        """The prefix that a request in flight shares with this chain: it is prefilled before this request starts."""
        for index in range(len(chain.keys) - 1, -1, -1):
            key = chain.keys[index]
            if self.reading[key] or (self.number is None and self.sent.peek(key)):
                return [FoundPoint(min(known.positions[index], known.length - 1))]
        return []

    def send(self, chain: Chain, work_ms: float) -> Flight:
        """A request goes there now, and counts at once."""
        flight = Flight(chain.keys, work_ms)
        self.flights.add(flight)
        self.reading.update(chain.keys)
        self.num_requests += 1
        return flight

    def begun(self, flight: Flight) -> None:
        """The first token of a request came: new requests no longer wait for its prefill."""
        flight.work_ms = 0.0
        if self.number is None:
            for key in flight.keys:
                self.sent.put(key, True)

    def ended(self, flight: Flight) -> None:
        """A request was answered, or failed."""
        self.flights.discard(flight)
        asyncio.get_running_loop().call_later(self.linger_s, self._forget, flight)

    def _forget(self, flight: Flight) -> None:
        for key in flight.keys:  # `Counter -= …` looks at every key there is
            self.reading[key] -= 1
            if not self.reading[key]:
                del self.reading[key]

    def failed(self) -> None:
        """The replica could not be reached, or closed the connection: others are tried first for a while."""
        self.num_failures += 1
        self.rests_until = self.clock() + _REST_S


class Fleet:
    """All replicas by their ids."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.views: dict[str, ReplicaView] = {}
        self.leaving: Collection[str] = ()  # URLs of replicas that are to stop, and get nothing new
        self._clock = clock

    def beat(self, told: Replica) -> ReplicaView:
        view = self.views.get(told.id)
        if view is None:
            view = self.views[told.id] = ReplicaView(told, self._clock)
        view.beat(told)
        return view

    def expire(self) -> list[ReplicaView]:
        """Drops replicas whose heartbeat has stopped. To be called only while the index can be read."""
        gone = [view for view in self.views.values() if self._clock() - view.seen_at > EXPIRY_S]
        for view in gone:
            view.gone.set()
            del self.views[view.id]
        return gone

    def candidates(self, model: str, besides: Iterable[str] = ()) -> list[ReplicaView]:
        """The replicas that take requests: those with the model that is named, or all if none has that name.

        If all of them have failed lately, these are better than none.
        """
        staying = (view for view in self.views.values() if view.is_there and view.told.url not in self.leaving)
        there = [view for view in staying if view.id not in besides]
        ready = [view for view in there if view.takes_requests] or there
        named = [view for view in ready if model and view.told.model == model]
        return named or ready

    @property
    def work(self) -> dict[str, Work]:
        """The requests on their way to each replica and the seconds of its unread prompts, by URL."""
        return {view.told.url: view.work for view in self.views.values()}

    @property
    def groups(self) -> dict[str, list[ReplicaView]]:
        """By fingerprint: only replicas of one group share anything."""
        groups: dict[str, list[ReplicaView]] = {}
        for view in self.views.values():
            groups.setdefault(view.told.fingerprint, []).append(view)
        return groups
