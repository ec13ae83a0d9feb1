"""What a replica tells of itself: heartbeats, numbered deltas, and everything again when the index has forgotten."""

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from leftoff.blobs.path_hash import HashedPath, short
from leftoff.cache.tree_copy import NodeCopy, PageCopy, PointCopy, TreeCopy
from leftoff.cluster.observe import Observation, held_by
from leftoff.cluster.publisher import Publisher
from leftoff.cluster.replica import (
    Delta,
    Heartbeats,
    Held,
    Load,
    Rates,
    Replica,
    ReplicaState,
    decode_delta,
    decode_held,
    decode_replica,
    models,
)
from leftoff.scheduler.gate import Readiness
from leftoff.store.keys import NUMBER, REPLICAS, replica_key
from leftoff.store.link import Link
from leftoff.store.replies import open_index_replies
from leftoff.types import Tokens
from tests.disk.stores import FINGERPRINT, path_of
from tests.patience import until
from tests.store.parts import Redis

TOKENS = path_of(3000, seed=50)
LOAD = Load(2, 0, 0, 512, 0, 4096)
RATES = Rates(*[1.0] * len(Rates.__struct_fields__))
NOTHING = Observation(0, LOAD, RATES, [], [], [])
REPLICA = Replica("r1", "http://one", FINGERPRINT, "tiny", "tiny, KV f16", "1")


def node(tokens: Tokens, start: int, points: list[int], covered: int, *children: NodeCopy) -> NodeCopy:
    """Tokens from `start` on, with snapshots of 10 bytes and pages of 1 byte per token up to `covered`."""
    spans = [(at, min(at + 256, covered)) for at in range(start, covered, 256)]
    pages = [PageCopy(*span, *span, span[1] - span[0]) for span in spans]
    resumable = [PointCopy(point, 10, 0, 0.0, False, False) for point in points]
    return NodeCopy("RAM", start, tokens[start:].tobytes(), 0.0, pages, resumable, [*children])


def held_at(end: int, ram_bytes: int, disk_bytes: int = 0, tokens: Tokens = TOKENS, namespace: str = "") -> Held:
    path = HashedPath(namespace, tokens)
    return Held(short(path.tag(end)), short(path.tag((end - 1) // 1024 * 1024)), end, ram_bytes, disk_bytes)


def test_a_point_is_held_if_its_pages_are() -> None:
    seen = replace(NOTHING, ram=[TreeCopy("", [node(TOKENS, 0, [1000, 2048, 2900], covered=2100)])])
    assert {*held_by(seen, has_pages=True).values()} == {held_at(1000, 1034), held_at(2048, 2058)}
    assert len(held_by(seen, has_pages=False)) == 3


def test_branches_are_hashed_from_where_they_part() -> None:
    other = np.concatenate([TOKENS[:1500], path_of(800, seed=51)])
    below = [node(TOKENS, 1500, [1600, 2500], 2500), node(other, 1500, [2100], 2300)]
    top = node(TOKENS[:1500], 0, [1500], 1500, *below)
    held = held_by(replace(NOTHING, disk=[TreeCopy("one/", [top])]), has_pages=True)
    ends = {each.end: each for each in held.values()}
    assert ends[2500].tag == held_at(2500, 0, namespace="one/").tag
    assert ends[2100].tag == held_at(2100, 0, tokens=other, namespace="one/").tag
    assert ends[2100].run == held_at(2100, 0, tokens=other, namespace="one/").run
    assert all(each.disk_bytes and not each.ram_bytes for each in held.values())


def test_the_fastest_place_of_a_point_is_told() -> None:
    tree = [TreeCopy("", [node(TOKENS, 0, [1000], 1000)])]
    assert [*held_by(replace(NOTHING, ram=tree, disk=tree), has_pages=True).values()] == [held_at(1000, 1010)]
    live = replace(NOTHING, ram=tree, live=[("", TOKENS[:1000])])
    assert [*held_by(live, has_pages=True).values()] == [held_at(1000, 0)]


class Member:
    """A publisher whose engine shows what the test sets."""

    def __init__(self, link: Link, port: int) -> None:
        self.link = link
        self.port = port
        self.shown = NOTHING
        self.unopened: list[Replica] = []
        self.publisher = Publisher(
            *(link, REPLICA, b"s" * 32, self._observe), has_pages=True, unopened=lambda: self.unopened
        )

    def beat(self, *ends: int) -> None:
        tree = [TreeCopy("", [node(TOKENS, 0, sorted(ends), 3000)])] if ends else []
        self.shown = replace(NOTHING, ram=tree, generation=self.shown.generation + 1)
        self.link.call(self.publisher.beat()).result()

    def _observe(self, _: int) -> "Future[Observation]":
        answer: Future[Observation] = Future()
        answer.set_result(self.shown)
        return answer


@pytest.fixture
def told(index: Redis) -> Iterator[Member]:
    link = Link("", index.url, FINGERPRINT)
    made = Member(link, index.port)
    made.link.call(flush(link)).result()
    yield made
    link.close()


async def flush(link: Link) -> None:
    await link.index.redis.flushall()


async def read(link: Link) -> tuple[list[Delta], dict[int, Held], int]:
    """The deltas in the stream, and all that is held, with the number of the last delta."""
    redis: Any = link.index.redis
    entries = await redis.xrange(link.index.keys.deltas)
    fields = await redis.hgetall(link.index.keys.held("r1"))
    number = int(fields.pop(NUMBER, 0))
    held = [decode_held(value) for value in fields.values()]
    return [decode_delta(entry[b"delta"]) for _, entry in entries], {each.end: each for each in held}, number


def test_deltas_are_numbered_and_the_hash_is_their_sum(told: Member) -> None:
    told.beat(500)
    told.beat(500, 900)
    told.beat(500, 900)
    told.beat(900, 1300)
    deltas, held, number = told.link.call(read(told.link)).result()
    assert [delta.number for delta in deltas] == [1, 2, 3]
    assert [[each.end for each in delta.kept] for delta in deltas] == [[500], [900], [1300]]
    assert [len(delta.dropped) for delta in deltas] == [0, 0, 1]
    assert sorted(held) == [900, 1300]
    assert number == 3


def test_an_index_that_was_restarted_between_two_heartbeats_is_given_the_replies_again(told: Member) -> None:
    replies = open_index_replies(told.link, FINGERPRINT)
    replies.put(b"k" * 32, "", b"a reply")
    told.beat()
    other = Link("", f"redis://127.0.0.1:{told.port}/0", FINGERPRINT)
    elsewhere = open_index_replies(other, FINGERPRINT)
    assert until(lambda: elsewhere.get([b"k" * 32]))
    told.link.call(flush(told.link)).result()
    assert not elsewhere.get([b"k" * 32])
    told.beat()
    assert until(lambda: elsewhere.get([b"k" * 32]))
    other.close()


def test_an_index_that_has_forgotten_is_told_all_again(told: Member) -> None:
    told.beat(500, 900)
    told.link.call(flush(told.link)).result()
    told.beat(500, 900, 1300)
    deltas, held, number = told.link.call(read(told.link)).result()
    assert [delta.is_whole for delta in deltas] == [False, True]
    assert sorted(held) == [500, 900, 1300]
    told.link.call(flush(told.link)).result()
    told.beat(500, 900, 1300)  # nothing new: but what it told is gone
    deltas, held, number = told.link.call(read(told.link)).result()
    assert [delta.is_whole for delta in deltas] == [True]
    assert sorted(held) == [500, 900, 1300]
    assert number == deltas[-1].number


def test_a_heartbeat_tells_the_state_and_ends_with_the_replica(told: Member) -> None:
    async def beat() -> Any:  # noqa: ANN401
        return await told.link.index.redis.get(replica_key("r1"))

    told.beat(500)
    seen = decode_replica(told.link.call(beat()).result())
    assert (seen.url, seen.state, seen.number, seen.num_observed, seen.load, seen.has_store) == (
        "http://one",
        ReplicaState.READY,
        1,
        1,
        LOAD,
        False,
    )
    told.link.call(told.publisher.drain()).result()
    assert decode_replica(told.link.call(beat()).result()).state is ReplicaState.DRAINING
    told.link.call(told.publisher.leave()).result()
    assert told.link.call(beat()).result() is None
    assert told.link.call(models(told.link.index.redis)).result() == ["tiny"], "the name stays its model's"
    assert not told.link.call(told.link.index.redis.zrange(REPLICAS, 0, -1)).result()  # type: ignore[arg-type]


def test_models_that_nobody_has_asked_have_heartbeats_until_they_are_opened(told: Member) -> None:
    async def beats() -> list[Replica]:
        return await Heartbeats(None).read(told.link.index.redis)

    late = Replica("r1.1", "http://one", model="late", order=1, readiness=Readiness(is_open=False))
    told.unopened = [late]
    told.beat()
    seen = {each.id: each for each in told.link.call(beats()).result()}
    assert (seen["r1.1"].model, seen["r1.1"].readiness.is_open, seen["r1.1"].order) == ("late", False, 1)
    assert {*told.link.call(models(told.link.index.redis)).result()} == {"tiny", "late"}
    told.link.call(told.publisher.drain()).result()
    assert {each.state for each in told.link.call(beats()).result()} == {ReplicaState.DRAINING}
    told.link.call(told.publisher.leave()).result()
    assert told.link.call(beats()).result() == []
