"""The Redis on paper answers as a real one does."""

import asyncio
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from lab.box.redis import Database
from leftoff.store import index as store_index
from leftoff.store.index import connect
from tests.store.parts import Redis, redis

KEYS = [b"one", b"two"]


@pytest.fixture
def server() -> Iterator[Redis]:
    with redis() as part:
        yield part


def commands(chance: random.Random) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Commands on keys of a type each, as the code sends them."""
    for _ in range(300):
        key, member, other = chance.choice(KEYS), b"%d" % chance.randrange(4), b"%d" % chance.randrange(4)
        some: Any = chance.choice(
            [
                [("set", (b"s" + key, member), {"nx": chance.random() < 0.5, "px": 60_000})],
                [("get", (b"s" + key,), {}), ("mget", ([b"s" + each for each in KEYS],), {})],
                [("delete", (chance.choice((b"s", b"z", b"h", b"m")) + key,), {})],
                [("exists", (b"s" + key,), {}), ("expire", (b"h" + key, 60), {})],
                [("zadd", (b"z" + key, {member: chance.randrange(3)}), {}), ("zcard", (b"z" + key,), {})],
                [("zrange", (b"z" + key, 0, -1), {}), ("zrem", (b"z" + key, member, other), {})],
                [("zrange", (b"z" + key, "-inf", 1), {"byscore": True, "offset": 0, "num": 2})],
                [("zremrangebyscore", (b"z" + key, "-inf", 0), {})],
                [("hset", (b"h" + key,), {"mapping": {member: other}}), ("hgetall", (b"h" + key,), {})],
                [("hget", (b"h" + key, member), {}), ("hdel", (b"h" + key, member, other), {})],
                [("sadd", (b"m" + key, member, other), {}), ("srem", (b"m" + key, other), {})],
                [
                    (
                        "script",
                        (store_index._ADD, _blob_keys(key), [b"1:0:", 7, 3, chance.randrange(9), member, 9999, b"n"]),
                        {},
                    )
                ],
                [("script", (store_index._TOUCH, _blob_keys(key)[:3], [5, member, 9999]), {})],
                [("script", (store_index._REMOVE, [b"a" + key, b"blobs", b"bytes"], [b"1:0:", member]), {})],
                [("get", (b"a" + key,), {}), ("get", (b"r" + key,), {}), ("get", (b"bytes",), {})],
                [("script", (store_index._FORGET, [b"namespaces"], [b"n", chance.choice((0.0, 60.0))]), {})],
                [("zscore", (b"z" + key, member), {})],
                [("script", (store_index._RENEW, [b"s" + key], [member, 60_000]), {})],
            ]
        )
        yield from some


def _blob_keys(key: bytes) -> list[bytes]:
    return [b"a" + key, b"r" + key, b"blobs", b"bytes", b"namespaces"]


@pytest.mark.parametrize("seed", range(10))
def test_answers_are_those_of_a_real_one(server: Redis, seed: int) -> None:
    async def play() -> None:
        real, paper = connect(server.url), Database(time.time)
        await real.flushall()
        for name, args, options in commands(random.Random(seed)):
            if name == "script":
                text, keys, values = args
                told = await real.register_script(text)(keys, values)
            else:
                told = await getattr(real, name)(*args, **options)
            assert getattr(paper, name)(*args, **options) == told, (name, args)
        await real.aclose()

    asyncio.run(play())
