"""Plays sessions against a fleet of replicas, by the clock of the trace.

A session asks again when it did in the recording, but not before its last request was answered. A request goes to the
replica that the router names, and waits there until those before it have been read.
"""

import heapq
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain, count
from operator import attrgetter

import numpy as np

from lab.simulate.fleet.replica import Line, Replica, Waiting
from lab.simulate.fleet.routers import ROUTERS
from lab.simulate.fleet.store import SharedStore, Stock
from lab.simulate.llm import Llm
from lab.simulate.outcome import Totals, totals
from lab.simulate.trace import Request, Session, num_ids
from leftoff.cluster.score import Estimate

_UNESTIMATED = Estimate(0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Fleet:
    """What is simulated. Without a line there is no store."""

    num_replicas: int
    router: str
    ram_bytes: int
    line: Line | None = None


@dataclass(frozen=True)
class FleetOutcome(Totals):
    """What a fleet made of the sessions. Times to the first token include waiting."""

    busy: float  # the share of the time in which the engines read or load
    most_over_mean: float  # computed tokens of the busiest replica over those of the average one
    moved: float  # the share of requests that went to another replica than the last of their session
    fetched_bytes: int
    stock: Stock | None
    seconds: float


class Play:
    """One run: events by time. An event is a session that asks, or a replica that has read a prompt."""

    def __init__(self, sessions: Sequence[Session], block_tokens: int, llm: Llm, fleet: Fleet) -> None:
        self._sessions = [list(session) for session in sessions]
        num_blocks = num_ids(chain.from_iterable(sessions))
        self._store = SharedStore(num_blocks, block_tokens) if fleet.line is not None else None
        self._replicas = [
            Replica(llm, block_tokens, fleet.ram_bytes, self._store, fleet.line) for _ in range(fleet.num_replicas)
        ]
        self._router = ROUTERS[fleet.router](self._replicas, num_blocks, self._store)
        self._order = count()
        self._events: list[tuple[float, int, Request | Replica]] = []
        self._next = [0] * len(sessions)
        self._ttft_ms: list[float] = []
        self._computed = np.zeros(fleet.num_replicas)
        self._busy_s = 0.0
        self._last_replica: dict[int, int] = {}
        self._num_moved = 0

    def run(self) -> FleetOutcome:
        began = time.perf_counter()
        for number in range(len(self._sessions)):
            self._ask_next(number, 0.0)
        now_s = 0.0
        while self._events:
            now_s, _, subject = heapq.heappop(self._events)
            if isinstance(subject, Replica):
                self._end(subject, now_s)
            else:
                self._arrive(subject, now_s)
        return self._outcome(now_s, time.perf_counter() - began)

    def _ask_next(self, number: int, not_before_s: float) -> None:
        session, index = self._sessions[number], self._next[number]
        if index < len(session):
            self._next[number] += 1
            self._add(max(not_before_s, session[index].time_s), session[index])

    def _add(self, time_s: float, subject: Request | Replica) -> None:
        heapq.heappush(self._events, (time_s, next(self._order), subject))

    def _arrive(self, request: Request, now_s: float) -> None:
        blocks = request.blocks()
        chosen = self._router.choose(request, blocks, now_s)
        self._num_moved += self._last_replica.get(request.session, chosen) != chosen
        self._last_replica[request.session] = chosen
        replica = self._replicas[chosen]
        in_store = self._store.deepest(blocks) if self._store is not None else 0
        replica.queue.append(Waiting(request, blocks, now_s, replica.estimate(blocks, now_s, in_store)))
        if replica.running is None:
            self._begin(chosen, now_s)

    def _begin(self, number: int, now_s: float) -> None:
        replica = self._replicas[number]
        waiting = replica.queue[0]
        num_tokens, first_token_s = replica.begin(now_s)
        self._computed[number] += num_tokens
        self._busy_s += first_token_s - now_s
        self._ttft_ms.append(1000 * (first_token_s - waiting.asked_s))
        self._add(first_token_s, replica)

    def _end(self, replica: Replica, now_s: float) -> None:
        assert replica.running is not None
        session = replica.running.request.session
        replica.end()
        self._ask_next(session, now_s)
        if replica.queue:
            self._begin(self._replicas.index(replica), now_s)

    def _outcome(self, end_s: float, seconds: float) -> FleetOutcome:
        requests = [*chain.from_iterable(self._sessions)]
        return FleetOutcome(
            **asdict(totals(requests, int(self._computed.sum()), np.array(self._ttft_ms))),
            busy=self._busy_s / end_s / len(self._replicas),
            most_over_mean=float(self._computed.max() / self._computed.mean()),
            moved=self._num_moved / len(requests),
            fetched_bytes=sum(replica.fetched_bytes for replica in self._replicas),
            stock=self._store.stock if self._store is not None else None,
            seconds=seconds,
        )


def single_machine(sessions: Sequence[Session], block_tokens: int, llm: Llm, fleet: Fleet) -> int:
    """The tokens that one machine computes for the same sessions, if it has the RAM of the whole fleet, and the store.

    It serves them in the order in which they come, however busy it is: what is compared is what is kept and found.
    """
    requests = sorted(chain.from_iterable(sessions), key=attrgetter("time_s"))
    store = SharedStore(num_ids(requests), block_tokens) if fleet.line is not None else None
    whole = Replica(llm, block_tokens, fleet.num_replicas * fleet.ram_bytes, store, fleet.line)
    computed = 0
    for request in requests:
        whole.queue.append(Waiting(request, request.blocks(), request.time_s, _UNESTIMATED))
        computed += whole.begin(request.time_s)[0]
        whole.end()
    return computed
