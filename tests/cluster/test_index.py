"""The follower of the index, against a real server: heartbeats, deltas, gaps, and an index that goes away."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from redis import Redis as Client

from leftoff.cluster.fleet import Fleet
from leftoff.cluster.index import IndexFollower
from leftoff.cluster.replica import EXPIRY_S, Delta, Held, Replica, encode
from leftoff.store.keys import MODELS, NUMBER, REPLICAS, Keys, replica_key
from tests.cluster.test_fleet import Clock, held, replica
from tests.patience import PATIENCE_S
from tests.store.parts import Redis, redis

KEYS = Keys("F1")


@pytest.fixture
def server() -> Iterator[Redis]:
    with redis() as server:
        yield server


class Teller:
    """A replica's side of the index, as `leftoff/cluster/replica.py` describes it."""

    def __init__(self, server: Redis) -> None:
        self.redis = Client.from_url(server.url)

    def beat(self, told: Replica) -> None:
        self.redis.zadd(REPLICAS, {told.id: 1.0})
        self.redis.set(replica_key(told.id), encode(told), ex=60)

    def tell(self, name: str, delta: Delta, *, in_stream: bool = True) -> None:
        fields: dict[Any, Any] = {each.tag: encode(each) for each in delta.kept} | {NUMBER: str(delta.number).encode()}
        self.redis.hset(KEYS.held(name), mapping=fields)
        if in_stream:
            self.redis.xadd(KEYS.deltas, {"replica": name, "delta": encode(delta)})


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


def following(
    server: Redis,
    play: Callable[[Fleet, IndexFollower, Teller], Awaitable[None]],
    scheme: str = "redis",
    clock: Callable[[], float] = time.monotonic,
) -> None:
    async def run() -> None:
        fleet = Fleet(clock)
        index = IndexFollower(server.url.replace("redis", scheme, 1), fleet, beat_s=0.02, retry_s=0.02)
        index.start()
        try:
            await play(fleet, index, Teller(server))
        finally:
            await index.close()

    asyncio.run(run())


def one(tag: bytes, end: int = 100) -> list[Held]:
    return [held(tag, end)]


@pytest.mark.parametrize("scheme", ["redis", "valkey"])
def test_a_replica_and_what_it_holds_are_found_and_followed(server: Redis, scheme: str) -> None:
    async def play(fleet: Fleet, _: IndexFollower, teller: Teller) -> None:
        teller.tell("a", Delta(1, one(b"before"), []))
        teller.beat(replica("a"))
        await until(lambda: "a" in fleet.views and fleet.views["a"].number == 1)
        teller.tell("a", Delta(2, one(b"after"), []))
        await until(lambda: {*fleet.views["a"].held} == {b"before", b"after"})

    following(server, play, scheme)


def test_after_a_gap_everything_is_read_anew(server: Redis) -> None:
    async def play(fleet: Fleet, _: IndexFollower, teller: Teller) -> None:
        teller.tell("a", Delta(1, one(b"1"), []))
        teller.beat(replica("a"))
        await until(lambda: "a" in fleet.views and fleet.views["a"].number == 1)
        teller.tell("a", Delta(2, one(b"2"), []), in_stream=False)
        teller.tell("a", Delta(3, one(b"3"), []))
        await until(lambda: {*fleet.views["a"].held} == {b"1", b"2", b"3"})

    following(server, play)


def test_everything_is_read_anew_once_however_much_follows_the_gap(server: Redis) -> None:
    async def play(fleet: Fleet, _: IndexFollower, teller: Teller) -> None:
        teller.tell("a", Delta(1, one(b"1"), []))
        teller.beat(replica("a"))
        await until(lambda: "a" in fleet.views and fleet.views["a"].number == 1)
        before = num_read_whole(teller)
        teller.redis.hset(KEYS.held("a"), mapping={NUMBER: b"100"})
        with teller.redis.pipeline(transaction=True) as pipe:
            for number in range(3, 101):
                pipe.xadd(KEYS.deltas, {"replica": "a", "delta": encode(Delta(number, [], []))})
            pipe.execute()
        await until(lambda: fleet.views["a"].number == 100)
        assert num_read_whole(teller) - before < 10

    following(server, play)


def num_read_whole(teller: Teller) -> int:
    stats: Any = teller.redis.info("commandstats")
    return int(stats["cmdstat_hgetall"]["calls"])


def test_without_an_index_what_was_known_stays_and_comes_back(server: Redis) -> None:
    async def play(fleet: Fleet, index: IndexFollower, teller: Teller) -> None:
        teller.beat(replica("a"))
        await until(lambda: "a" in fleet.views)
        server.kill()
        await until(lambda: not index.is_reachable)
        assert await index.find([b"key"]) == {}
        assert await index.stored("F1", [b"tag"]) == []
        index.put({b"key": b"value"})
        assert fleet.views["a"].takes_requests
        server.start()
        again = Teller(server)
        again.beat(replica("a"))
        again.beat(replica("b"))
        await until(lambda: "b" in fleet.views)

    following(server, play)


def test_an_index_that_comes_back_empty_leaves_replicas_time_to_beat(server: Redis) -> None:
    clock = Clock()

    async def play(fleet: Fleet, index: IndexFollower, teller: Teller) -> None:
        teller.beat(replica("a"))
        await until(lambda: "a" in fleet.views)
        server.kill()
        await until(lambda: not index.is_reachable)
        clock.now += 60
        server.start()
        Teller(server).beat(replica("b"))
        await until(lambda: "b" in fleet.views)
        assert fleet.views["a"].takes_requests, "its heartbeat could not be read for a minute"
        for _ in range(3):
            clock.now += 0.35 * EXPIRY_S
            await until(lambda: fleet.views["b"].seen_at == clock.now)
        assert "a" not in fleet.views, "its time to beat again is over"

    following(server, play, clock=clock)


def test_an_index_that_takes_no_writes_is_no_reason_to_give_replicas_up(server: Redis) -> None:
    """One that is full, or has become a copy of another, can still be read, and all heartbeats are gone from it."""
    clock = Clock()

    async def play(fleet: Fleet, index: IndexFollower, teller: Teller) -> None:
        teller.beat(replica("a"))
        await until(lambda: "a" in fleet.views)
        teller.redis.config_set("maxmemory", 1)
        await until(lambda: not index.is_reachable)
        clock.now += 60
        teller.redis.config_set("maxmemory", 0)
        await until(lambda: index.is_reachable and fleet.views["a"].seen_at == clock.now)

    following(server, play, clock=clock)


def test_a_replica_that_is_good_for_its_own_machine_alone_is_left_out(
    server: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Its URL would lead to whatever listens there on this machine."""

    async def play(fleet: Fleet, index: IndexFollower, teller: Teller) -> None:
        index._is_local = False  # the index of a test is
        teller.beat(replica("a", url="http://127.0.0.1:8080"))
        teller.beat(replica("b"))
        await until(lambda: "b" in fleet.views)
        assert "a" not in fleet.views

    following(server, play)
    assert "http://127.0.0.1:8080 is another machine: start it with --advertise" in caplog.text


def test_the_name_of_a_model_outlives_its_replicas(server: Redis) -> None:
    async def play(fleet: Fleet, _: IndexFollower, teller: Teller) -> None:
        teller.redis.zadd(MODELS, {"other": 1.0})
        teller.beat(replica("a"))
        await until(lambda: "a" in fleet.views)
        assert fleet.candidates("other") == []

    following(server, play)


def test_routers_share_what_they_learn_and_ask_what_is_stored(server: Redis) -> None:
    async def play(_: Fleet, index: IndexFollower, teller: Teller) -> None:
        index.put({b"key": b"value"})
        teller.redis.hset(KEYS.at(b"t" * 32), "2:0", "100")
        found: dict[bytes, bytes] = {}
        there: list[bytes] = []
        async with asyncio.timeout(PATIENCE_S):
            while not (found and there):  # the index has fifty milliseconds to answer: on a busy machine it may not
                await asyncio.sleep(0.01)
                found = dict(await index.find([b"key", b"other"]))
                there = await index.stored("F1", [b"t" * 32, b"u" * 32])
        assert found == {b"key": b"value"}
        assert there == [b"t" * 32]

    following(server, play)
