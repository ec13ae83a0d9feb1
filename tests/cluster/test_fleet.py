"""A replica's view: what it holds by deltas, how long its queue is, and when it is gone."""

import asyncio
import json
from dataclasses import dataclass

import msgspec

from leftoff.cluster.chain import Chain, read_chain
from leftoff.cluster.fleet import Fleet, ReplicaView
from leftoff.cluster.memory import Known, Place
from leftoff.cluster.replica import EXPIRY_S, Delta, Held, Load, Rates, Replica, ReplicaState
from leftoff.cluster.score import FoundPoint

RATES = Rates(1.0, 10.0, 100.0, 1e6, 0.0, 1e6, 0.0, 1e6, 10.0)
IDLE = Load(2, 0, 0, 4, 0, 1000)
KNOWN = Known((Place(500, b"header"), Place(900, b"end")), 1000, (500, 900, 1000))
CHAIN = Chain((b"0", b"1", b"2"), (2000, 3600, 4000))


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def replica(name: str = "a", load: Load = IDLE, **changes: object) -> Replica:
    whole = Replica(
        name, f"http://{name}", "F1", "tiny", "tiny, f16", "1", ReplicaState.READY, 0, load, RATES, has_store=True
    )
    return msgspec.structs.replace(whole, **changes)


def view(load: Load = IDLE) -> ReplicaView:
    made = ReplicaView(replica(load=load), Clock())
    made.beat(replica(load=load))
    return made


def held(tag: bytes, end: int, ram_bytes: int = 1_000_000) -> Held:
    return Held(tag, b"run", end, ram_bytes, 0)


def test_what_is_held_follows_the_deltas() -> None:
    seen = view()
    assert not seen.apply(Delta(5, [held(b"end", 900)], [])), "what came before is not known"
    seen.replace_held([held(b"header", 500)], 5)
    assert seen.apply(Delta(5, [], [b"header"])), "that was in the whole already"
    assert seen.apply(Delta(6, [held(b"end", 900)], []))
    assert {*seen.held} == {b"header", b"end"}
    assert not seen.apply(Delta(8, [], [b"end"])), "one is missing"
    assert seen.apply(Delta(9, [held(b"new", 10)], [], is_whole=True))
    assert {*seen.held} == {b"new"}


def test_the_deepest_that_it_holds_is_resumed() -> None:
    seen = view()
    assert seen.estimate(CHAIN, KNOWN).read_ms == 1000
    seen.replace_held([held(b"header", 500)], 1)
    assert (seen.estimate(CHAIN, KNOWN).resume, seen.estimate(CHAIN, KNOWN).load_ms) == (500, 1.0)
    stored = [FoundPoint(900, 2_000_000, 0, 2_000_000, 1)]
    assert seen.estimate(CHAIN, KNOWN, stored).resume == 900


def test_requests_on_their_way_count_at_once() -> None:
    async def play() -> None:
        seen = view()
        flight = seen.send(CHAIN, 800.0)
        assert seen.queue_ms == 800
        assert seen.estimate(CHAIN, KNOWN).resume == 999, "who comes now shares what is being read"
        seen.begun(flight)
        assert seen.queue_ms == 0
        seen.ended(flight)
        assert not seen.flights

    asyncio.run(play())


def test_what_was_read_for_a_request_is_forgotten_when_the_replica_has_told() -> None:
    async def play() -> list[int]:
        seen = view()
        seen.linger_s = 0.0
        first, second = (seen.send(CHAIN, 800.0) for _ in range(2))
        found = []
        for flight in (first, second):
            seen.ended(flight)
            later = asyncio.Event()
            asyncio.get_running_loop().call_later(0.0, later.set)
            await later.wait()
            found.append(seen.estimate(CHAIN, KNOWN).resume)
        assert not seen.reading
        return found

    assert asyncio.run(play()) == [999, 0], "as long as another one reads it, it is shared"


def test_the_queue_that_it_tells_of_shrinks_with_time() -> None:
    seen = view(Load(2, 1, 0, 4, 600, 0))
    assert seen.queue_ms == 600
    seen.clock.now += 0.5  # type: ignore[attr-defined]
    assert round(seen.queue_ms) == 100


def test_without_a_slot_replies_are_waited_for() -> None:
    assert view(Load(2, 2, 1, 4, 0, 0)).queue_ms == 2 * 100 * 10 / 2
    assert view(Load(2, 2, 4, 4, 0, 0)).is_full
    assert not view(Load(2, 2, 3, 4, 0, 0)).is_full


def test_a_replica_that_failed_rests_and_one_that_drains_takes_nothing() -> None:
    seen = view()
    seen.failed()
    taken = [seen.takes_requests]
    seen.clock.now += 10  # type: ignore[attr-defined]
    taken.append(seen.takes_requests)
    seen.beat(replica(state=ReplicaState.DRAINING))
    assert [*taken, seen.takes_requests] == [False, True, False]


def test_without_heartbeats_it_is_gone() -> None:
    clock = Clock()
    fleet = Fleet(clock)
    one, _ = fleet.beat(replica("a")), fleet.beat(replica("b", fingerprint="F2", model="other"))
    assert {*fleet.groups} == {"F1", "F2"}
    assert [each.id for each in fleet.candidates("other")] == ["b"]
    assert [each.id for each in fleet.candidates("any name")] == ["a", "b"]
    assert [each.id for each in fleet.candidates("", besides=["a"])] == ["b"]
    clock.now += EXPIRY_S - 1
    fleet.beat(replica("b", fingerprint="F2"))
    clock.now += 2
    assert fleet.expire() == [one]
    assert one.gone.is_set()
    assert {*fleet.views} == {"b"}


def test_of_an_unknown_replica_what_was_sent_is_remembered() -> None:
    async def play() -> None:
        seen = view()
        asked = read_chain(json.dumps({"messages": [{"role": "user", "content": "Hi"}]}).encode(), {})
        known = Known((), 40, (20, 40))
        assert seen.estimate(asked, known).resume == 0
        seen.begun(seen.send(asked, 1.0))
        seen.reading.clear()
        assert seen.estimate(asked, known).resume == 39

    asyncio.run(play())


def test_a_replica_that_is_to_stop_gets_nothing_new() -> None:
    fleet = Fleet(Clock())
    for name in ("a", "b"):
        fleet.beat(replica(name))
    fleet.leaving = ["http://a"]
    assert [each.id for each in fleet.candidates("")] == ["b"]
