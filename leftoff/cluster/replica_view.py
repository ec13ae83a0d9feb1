"""A replica as a router sees it: its heartbeats, what it holds, and what the router has sent to it itself."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from leftoff.cluster.chain import Chain
from leftoff.cluster.memory import Known
from leftoff.cluster.replica import EXPIRY_S, Delta, Held, Load, Replica, ReplicaCosts, ReplicaState
from leftoff.cluster.roster import Work
from leftoff.cluster.score import Estimate, FoundPoint, beside, estimate
from leftoff.lru import LruCache

_MAX_SENT_KEYS = 20_000  # remembered of a replica that has not told yet that it holds them
_MAX_UNTOLD = 1000  # requests whose end is remembered, of a replica that has not told of it
# A heartbeat with so many more observations than there were at a moment tells of after that moment for sure: one or two
# of them may have been on their way.
_OBSERVATIONS = 3
_REST_S = 2.0  # how long a replica that refused a connection is left alone


@dataclass(eq=False)
class Flight:
    """A request that was sent and has not ended. `work_ms` is what its first token takes the engine, then 0."""

    keys: Sequence[bytes]
    work_ms: float
    has_begun: bool = False


@dataclass(eq=False)
class ReplicaView:
    """One replica. `gone` is set when its heartbeat stops: requests that wait for it are sent elsewhere."""

    told: Replica
    clock: Callable[[], float] = time.monotonic
    held: dict[bytes, Held] = field(default_factory=dict)
    number: int | None = None  # of the last delta that was applied; None if what it holds is not known
    num_late: int = 0  # heartbeats in a row that told of later deltas
    seen_at: float = 0.0
    observed_at: float = 0.0  # when its load came
    num_known: int = 0  # the last of its observations of which all deltas have come
    rests_until: float = 0.0
    flights: set[Flight] = field(default_factory=set)
    reading: Counter[bytes] = field(default_factory=Counter)  # keys of requests that are on their way
    # Keys of requests that it has read, with the observation before their end, until it has told what it kept of them.
    sent: LruCache[bytes, int] = field(default_factory=lambda: LruCache(max_entries=_MAX_SENT_KEYS))
    # What may still count as load in the last heartbeat: prompts that were read, in ms, and requests that have ended.
    read: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=_MAX_UNTOLD))
    done: deque[int] = field(default_factory=lambda: deque(maxlen=_MAX_UNTOLD))
    costs: ReplicaCosts = field(default_factory=ReplicaCosts)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    num_requests: int = 0
    num_failures: int = 0

    @property
    def id(self) -> str:
        return self.told.id

    @property
    def name(self) -> str:
        return self.told.model

    @property
    def aliases(self) -> Sequence[str]:
        return self.told.aliases

    @property
    def is_in_index(self) -> bool:
        """Whether it has a heartbeat in the index. Of another only the URL is known, with which its id begins."""
        return not self.told.id.startswith(self.told.url)

    @property
    def takes_requests(self) -> bool:
        return self.is_there and self.clock() >= self.rests_until

    @property
    def is_there(self) -> bool:
        """Whether it wants requests, and its heartbeat has not stopped. It may still be left alone after a failure."""
        return self.told.state is ReplicaState.READY and not self.gone.is_set()

    @property
    def is_full(self) -> bool:
        load = self.told.load
        return max(load.num_waiting, len(self.flights) - load.num_slots) >= max(1, load.most_waiting)

    @property
    def queue_ms(self) -> float:
        """How long a new request waits for its prefill: the larger of what the replica reports and what was sent to it.

        The heartbeat counts other routers' requests too, and is up to a second old; own requests count at once, and no
        more once they have been read or have ended. If heartbeats stay away, own requests are all that is known.
        """
        load, rates = self.told.load, self.told.rates
        if self.clock() - self.seen_at > EXPIRY_S:
            load = Load(load.num_slots)
        age_ms = 1000 * max(0.0, self.clock() - self.observed_at)
        reading_ms = max(0.0, self.costs.prefill_ms(load.queued_tokens) - age_ms - sum(ms for _, ms in self.read))
        own_ms = sum(flight.work_ms for flight in self.flights)
        num_there = load.num_running + load.num_waiting - len(self.done)
        num_ahead = max(num_there, len(self.flights)) + 1 - load.num_slots
        slots_ms = max(0, num_ahead) * rates.reply_tokens * rates.step_ms / max(1, load.num_slots)
        return max(reading_ms, own_ms) + slots_ms

    @property
    def busy_ms(self) -> float:
        """How long until what it has begun has ended, about."""
        load, rates = self.told.load, self.told.rates
        return self.queue_ms + (rates.reply_tokens * rates.step_ms if load.num_running or self.flights else 0.0)

    @property
    def is_waking(self) -> bool:
        """Whether a request is on its way to a model that was asleep at its last heartbeat."""
        return not self.told.readiness.is_awake and bool(self.flights)

    def wake_ms(self, siblings: Iterable["ReplicaView"]) -> float:
        """How long a new request waits for the model to be loaded, and before that for others of its server.

        A request that loads a model counts at once: what it waits for stands in the queue of later ones, and the model
        that makes way for it is not awake any more.
        """
        ready = self.told.readiness
        others = [each for each in siblings if each is not self]
        in_the_way = [each for each in others if each.is_waking and not each.told.readiness.has_room]
        if self.is_waking or (ready.is_awake and not in_the_way):
            return 0.0
        if not ready.has_room:
            in_the_way += [each for each in others if each.told.readiness.is_awake]
        return ready.load_ms + max((each.busy_ms for each in in_the_way), default=0.0)

    @property
    def work(self) -> Work:
        load, rates = self.told.load, self.told.rates
        return Work(len(self.flights), load.queued_tokens / rates.prefill_tokens_per_ms / 1000)

    def beat(self, told: Replica) -> None:
        """Takes in a heartbeat. One that brings no new observation says no more than that the replica is there."""
        if not self.seen_at or told.num_observed != self.told.num_observed:
            self.observed_at = self.clock()
        if told.fingerprint != self.told.fingerprint:  # it was opened
            self.number = None
        self.told, self.seen_at = told, self.clock()
        self.gone.clear()
        while self.read and self._was_observed(self.read[0][0]):
            self.read.popleft()
        while self.done and self._was_observed(self.done[0]):
            self.done.popleft()
        self._note_known()
        self.costs = told.rates.costs

    def apply(self, delta: Delta) -> bool:
        """Applies what has changed. False if something is missing before it: then all must be read anew."""
        if delta.is_whole:
            self.held.clear()
        elif self.number is None or delta.number > self.number + 1:
            self.number = None
            return False
        elif delta.number <= self.number:
            return True
        for tag in delta.dropped:
            self.held.pop(tag, None)
        self.held.update((held.tag, held) for held in delta.kept)
        self.number = delta.number
        self._note_known()
        return True

    def replace_held(self, held: Iterable[Held], number: int) -> None:
        """Sets all that it holds, as it was after the delta of this number."""
        self.held = {each.tag: each for each in held}
        self.number = number
        self._note_known()

    def _note_known(self) -> None:
        if self.number is not None and self.number >= self.told.number:
            self.num_known = self.told.num_observed

    def _was_observed(self, before: int) -> bool:
        """Whether its load tells of after the moment at which `before` was its last observation."""
        return self.told.num_observed >= before + _OBSERVATIONS

    # --- requests

    def estimate(self, chain: Chain, known: Known, stored: Sequence[FoundPoint] = (), wake_ms: float = 0.0) -> Estimate:
        """Its time to the first token, by what it holds, is about to hold, and can fetch from the store."""
        local = [
            FoundPoint(held.end, held.ram_bytes + held.disk_bytes, held.disk_bytes)
            for place in known.places
            if (held := self.held.get(place.tag)) is not None
        ]
        local += self._on_the_way(chain, known)
        more = beside(local, stored) if self.told.has_store else []
        return estimate(known.length, local + more, self.costs, self.queue_ms, wake_ms)

    def _on_the_way(self, chain: Chain, known: Known) -> list[FoundPoint]:
        """The longest prefix of the chain that an earlier request has it prefill before this one starts."""
        for index in range(len(chain.keys) - 1, -1, -1):
            if self.reading[chain.keys[index]] or self._was_sent(chain.keys[index]):
                return [FoundPoint(min(known.positions[index], known.length - 1))]
        return []

    def _was_sent(self, key: bytes) -> bool:
        """Whether it has read this key for a request, and has not told since whether it keeps that."""
        before = self.sent.peek(key)
        return before is not None and (self.number is None or self.num_known < before + _OBSERVATIONS)

    def send(self, chain: Chain, work_ms: float) -> Flight:
        """A request goes there now, and counts at once."""
        flight = Flight(chain.keys, work_ms)
        self.flights.add(flight)
        self.reading.update(chain.keys)
        self.num_requests += 1
        return flight

    def begun(self, flight: Flight) -> None:
        """The first token of a request came: new requests no longer wait for its prefill, nor for the model."""
        self.read.append((self.told.num_observed, flight.work_ms))
        flight.work_ms, flight.has_begun = 0.0, True
        self.told = replace(self.told, readiness=replace(self.told.readiness, is_awake=True, has_room=True))

    def ended(self, flight: Flight) -> None:
        """A request was answered, or failed."""
        self.flights.discard(flight)
        self.done.append(self.told.num_observed)
        for key in flight.keys:  # `Counter -= …` looks at every key there is
            if flight.has_begun:
                self.sent.put(key, self.told.num_observed)
            self.reading[key] -= 1
            if not self.reading[key]:
                del self.reading[key]

    def failed(self) -> None:
        """The replica could not be reached, or closed the connection: others are tried first for a while."""
        self.num_failures += 1
        self.rests_until = self.clock() + _REST_S
