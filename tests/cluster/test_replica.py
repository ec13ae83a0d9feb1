"""Heartbeats of a fleet with a key: who can write to the index announces no server."""

import asyncio

import pytest
from redis import Redis as Client
from redis.asyncio import Redis as AsyncClient

from leftoff.cluster.replica import EXPIRY_S, Heartbeats, Replica, models
from leftoff.store.fleet_key import FleetKey
from leftoff.store.keys import MODELS, REPLICAS, replica_key
from tests.store.parts import Redis

KEY, OTHER = FleetKey(b"a key of ours, long enough for all"), FleetKey(b"another key, that nobody of us has")
OURS = Replica("ours", "http://one")


def told(index: Redis, contents: dict[str, bytes], key: FleetKey | None) -> list[str]:
    """The replicas that are seen with a key if these heartbeats lie in the index."""
    with Client.from_url(index.url) as client:
        client.flushall()
        for name, content in contents.items():
            client.zadd(REPLICAS, {name: 1.0})
            client.set(replica_key(name), content)

    async def read() -> list[str]:
        async with AsyncClient.from_url(index.url) as redis:
            return [replica.id for replica in await Heartbeats(key).read(redis)]

    return asyncio.run(read())


def now(index: Redis) -> float:
    with Client.from_url(index.url) as client:
        return float(client.time()[0])


def test_only_servers_with_the_key_are_seen(index: Redis, caplog: pytest.LogCaptureFixture) -> None:
    at = now(index)
    contents = {
        "ours": Heartbeats(KEY).encoded(OURS, at),
        "plain": Heartbeats(None).encoded(Replica("plain", "http://evil"), at),
        "foreign": Heartbeats(OTHER).encoded(Replica("foreign", "http://evil"), at),
        "copied": Heartbeats(KEY).encoded(OURS, at),  # under another name
    }
    assert told(index, contents, KEY) == ["ours"]
    assert "--fleet-key" in caplog.text
    assert told(index, contents, None) == ["plain"]


def test_one_that_cannot_be_read_hides_no_other(index: Redis) -> None:
    sound = Heartbeats(None).encoded(OURS, 0.0)
    contents = {"ours": sound, "text": sound.replace(b"ours", b"our\xff"), "bytes": b"\xc1"}
    assert told(index, contents, None) == ["ours"]


def test_an_old_heartbeat_cannot_be_sent_again(index: Redis) -> None:
    old = Heartbeats(KEY).encoded(OURS, now(index) - EXPIRY_S - 2)
    assert told(index, {"ours": old}, KEY) == []


def test_of_too_many_the_latest_are_read(index: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids of replicas that are gone stay in the list for an hour."""
    monkeypatch.setattr("leftoff.cluster.replica._MAX_REPLICAS", 2)
    monkeypatch.setattr("leftoff.cluster.replica.MAX_MODELS", 2)
    contents = {name: Heartbeats(None).encoded(Replica(name, "http://one"), 0.0) for name in ("a", "b", "c")}
    assert told(index, contents, None) == ["b", "c"]

    async def read() -> list[str]:
        async with AsyncClient.from_url(index.url) as redis:
            await redis.zadd(MODELS, {"old": 1.0, "new": 2.0, "newest": 3.0})
            return await models(redis)

    assert asyncio.run(read()) == ["new", "newest"]
