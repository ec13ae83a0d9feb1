"""The choice of a replica: where the state is, unless waiting for it takes longer than fetching or reading it."""

import asyncio
import json
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import pytest
from redis import Redis as Client

from leftoff.cluster.chain import Chain, read_chain
from leftoff.cluster.fleet import Fleet
from leftoff.cluster.index import IndexFollower
from leftoff.cluster.replica import Load
from leftoff.cluster.replica_view import ReplicaView
from leftoff.cluster.router import AllFullError, NoReplicaError, OwnerGoneError, ReplicaChoice, Router
from leftoff.scheduler.gate import Readiness
from leftoff.server.reply.points import AT_HEADER, Point, PromptPoints
from leftoff.store.keys import Keys
from tests.cluster.test_fleet import RATES, held, replica
from tests.patience import PATIENCE_S
from tests.store.parts import Redis, redis

Result = TypeVar("Result")
HEADER, END = b"header".ljust(16), b"end".ljust(16)
FULL = Load(2, 2, 4, 4, 0, 0)


def run(work: Coroutine[Any, Any, Result]) -> Result:
    return asyncio.run(work)


def chain(*texts: str, **fields: object) -> Chain:
    said = [{"role": "system", "content": "word " * 2000}, *({"role": "user", "content": text} for text in texts)]
    return read_chain(json.dumps({"messages": said, **fields}).encode(), {})


def fleet(*names: str, load: Load | None = None) -> Fleet:
    made = Fleet()
    for name in names:
        view = made.beat(replica(name, **({"load": load} if load else {})))
        view.replace_held([], 0)
    return made


def learnt(router: Router) -> Router:
    """A conversation whose header has 2,000 tokens, and its first prompt 2,020."""
    points = [Point(AT_HEADER, 2000, HEADER), Point(0, 2020, END)]
    router.learn(chain("Hi").of("tiny"), PromptPoints(2020, points))
    return router


def chosen(router: Router, asked: Chain) -> ReplicaChoice:
    return run(router.choose(asked))


def test_the_replica_that_holds_most_is_chosen() -> None:
    views = fleet("a", "b", "c")
    views.views["b"].replace_held([held(HEADER, 2000)], 1)
    views.views["c"].replace_held([held(HEADER, 2000), held(END, 2020)], 1)
    router = learnt(Router(views))
    choice = chosen(router, chain("Hi", "Hello", "And?"))
    assert (choice.view.id, choice.estimate.resume) == ("c", 2020)
    assert chosen(router, chain("Another")).view.id in ("b", "c"), "both hold the header"


def test_a_long_queue_is_worse_than_reading_again() -> None:
    views = fleet("a", "b")
    views.views["a"].replace_held([held(END, 2020)], 1)
    router = learnt(Router(views))
    views.beat(replica("a", load=Load(2, 1, 0, 4, 100_000, 0)))
    assert chosen(router, chain("Hi", "Hello", "And?")).view.id == "b"


@pytest.mark.parametrize(("slower", "home"), [(15, "a"), (400, "b")])
def test_a_conversation_does_not_leave_because_rates_were_measured_unlike(slower: float, home: str) -> None:
    views = fleet("a", "b")
    views.views["a"].replace_held([held(END, 2020)], 1)
    router = learnt(Router(views))
    rates = msgspec.structs.replace(RATES, prefill_tokens_per_ms=RATES.prefill_tokens_per_ms / slower)
    views.beat(replica("a", rates=rates))
    assert chosen(router, chain("Hi", "Hello", "word " * 800)).view.id == home


def test_new_conversations_spread() -> None:
    async def play() -> list[str]:
        router, homes = Router(fleet("a", "b", "c")), []
        for number in range(6):
            choice = await router.choose(chain(f"{number}", tools=[{"name": f"{number}"}]))
            homes.append(choice.view.id)
            flight = choice.view.send(choice.chain, choice.estimate.work_ms)
            choice.view.begun(flight)
            choice.view.ended(flight)
        return homes

    assert sorted(run(play())) == ["a", "a", "b", "b", "c", "c"]


def test_two_over_one_new_header_go_to_one_replica() -> None:
    async def play() -> set[str]:
        router, homes = Router(fleet("a", "b", "c")), set()
        for text in ("one", "two", "three"):
            choice = await router.choose(chain(text))
            choice.view.send(choice.chain, choice.estimate.work_ms)
            homes.add(choice.view.id)
        return homes

    assert len(run(play())) == 1


@pytest.mark.parametrize(("queued", "home"), [(1000, "a"), (100_000, "b")])
def test_a_busy_replica_that_is_awake_or_an_idle_one_that_sleeps_is_a_matter_of_time(queued: int, home: str) -> None:
    views = fleet("a", "b")
    views.beat(replica("a", load=Load(2, 1, 0, 4, queued, 0)))
    views.beat(replica("b", readiness=Readiness(is_awake=False, load_ms=5000)))
    choice = chosen(Router(views), chain("Hi"))
    assert (choice.view.id, choice.estimate.wake_ms) == (home, 0 if home == "a" else 5000)


@pytest.mark.parametrize(("load_ms", "home"), [(500, "a"), (5000, "b")])
def test_where_a_model_sleeps_what_it_holds_is_worth_the_loading_or_not(load_ms: float, home: str) -> None:
    views = fleet("a", "b")
    views.views["a"].replace_held([held(END, 2020)], 1)
    views.beat(replica("a", readiness=Readiness(is_awake=False, load_ms=load_ms)))
    assert chosen(learnt(Router(views)), chain("Hi", "Hello", "And?")).view.id == home


def test_a_conversation_with_one_model_says_nothing_of_another() -> None:
    views = fleet("a")
    views.beat(replica("a.1", model="other", fingerprint="F2", order=1))
    router = learnt(Router(views))
    for view in views.views.values():
        view.replace_held([held(END, 2020)], 1)
    asked = [chain("Hi", "Hello", "And?", model=name) for name in ("tiny", "other")]
    assert [chosen(router, each).estimate.resume for each in asked] == [2020, 0]


def test_what_a_server_has_made_with_one_model_is_asked_of_it_for_another() -> None:
    views = fleet("a", "b")
    for name in ("a", "b"):
        views.beat(replica(f"{name}.1", url=f"http://{name}", model="other", order=1))
    router = Router(views)
    router.own("resp_1", views.views["b"])
    asked = chain("Hi", model="other", previous_response_id="resp_1")
    assert {chosen(router, asked).view.id for _ in range(3)} == {"b.1"}
    assert chosen(router, replace(chain("Hi", model="other"), replica="b")).view.id == "b.1"


def test_full_gone_and_tried_replicas_are_not_chosen() -> None:
    with pytest.raises(NoReplicaError, match="no replica"):
        chosen(Router(fleet()), chain("Hi"))
    with pytest.raises(AllFullError, match="all 2 replicas"):
        chosen(Router(fleet("a", "b", load=FULL)), chain("Hi"))
    assert chosen(Router(fleet("a", load=FULL)), Chain((), ())), "what is no prompt takes no place in a queue"
    router = Router(fleet("a", "b"))
    assert run(router.choose(chain("Hi"), besides=["a"])).view.id == "b"


def test_what_one_replica_has_made_is_asked_of_it() -> None:
    router = Router(fleet("a", "b", "c"))
    router.own("resp_1", router.fleet.views["b"])
    asked = chain("Hi", previous_response_id="resp_1")
    assert {chosen(router, asked).view.id for _ in range(3)} == {"b"}
    assert run(router.choose(asked, besides=["b"])).view.id in ("a", "c"), "which will say that it does not know it"
    del router.fleet.views["b"]
    with pytest.raises(OwnerGoneError, match="resp_1 was kept by the replica b alone, which is gone"):
        chosen(router, asked)


def test_a_request_for_one_replica_goes_there_or_nowhere() -> None:
    router = Router(fleet("a", "b"))
    asked = replace(chain("Hi"), replica="b")
    assert {chosen(router, asked).view.id for _ in range(3)} == {"b"}
    with pytest.raises(NoReplicaError, match="no replica 'b' can be reached"):
        run(router.choose(asked, besides=["b"]))


# --- with an index


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    with redis() as part:
        yield part


def test_an_idle_replica_fetches_what_a_busy_one_has_stored(server: Redis) -> None:
    async def play() -> ReplicaChoice:
        views = fleet("a", "b")
        busy: ReplicaView = views.views["a"]
        busy.replace_held([held(END, 2020, ram_bytes=40_000_000)], 1)
        views.beat(replica("a", load=Load(2, 2, 1, 4, 3000, 0)))
        Client.from_url(server.url).hset(Keys("F1").at(END), "2:0", "1000")
        index = IndexFollower(server.url, views)
        router = learnt(Router(views, index))
        async with asyncio.timeout(PATIENCE_S):
            while (choice := await router.choose(chain("Hi", "Hello", "And?"))).estimate.resume == 0:
                await asyncio.sleep(0.01)  # the index has fifty milliseconds to answer
        await index.close()
        return choice

    choice = run(play())
    assert (choice.view.id, choice.estimate.resume) == ("b", 2020)
    assert choice.estimate.fetch_ms > 0
