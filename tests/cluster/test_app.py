"""A router over replicas that share an index and a store: they are found, and conversations move without being read."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from leftoff.cluster.app import RouterApp
from leftoff.cluster.fleet import Fleet
from leftoff.cluster.health import listed
from tests.cluster.here import Part, replica, router
from tests.cluster.test_proxy import chat, known
from tests.patience import PATIENCE_S, until
from tests.store.parts import Redis


@pytest.fixture(scope="module")
def replicas(index: Redis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Part]]:
    store = f"file://{tmp_path_factory.mktemp('store')}"
    with ExitStack() as closing:
        parts = [replica("--index", index.url, "--store", store) for _ in range(2)]
        for part in parts:
            closing.callback(part.close)
        yield parts


@pytest.fixture(scope="module")
def route(index: Redis, replicas: list[Part]) -> Iterator[Part]:
    part = router(index.url)
    assert until(lambda: len(known(part)) == len(replicas))
    yield part
    part.close()


def held(route: Part) -> int:
    return sum(int(str(each["held_points"] or 0)) for each in known(route))


def test_replicas_are_found_and_a_conversation_stays_at_home(route: Part) -> None:
    said, homes = ["My name is Ada."], []
    for question in ("What is my name?", "Say it again."):
        before = held(route)
        answer = chat(route.url, *said)
        homes.append(answer.headers["x-leftoff-replica"])
        said += [answer.json()["choices"][0]["message"]["content"], question]
        assert until(lambda before=before: held(route) > before), "the replica tells what it keeps"  # type: ignore[misc]
    assert len({*homes}) == 1


def test_one_fingerprint_is_one_group_and_nothing_is_said(route: Part) -> None:
    described = httpx.get(f"{route.url}/cluster", timeout=PATIENCE_S).json()
    assert described["index"] == "ok"
    (group,) = described["groups"]
    assert len(group["replicas"]) == 2
    assert described["notes"] == []


def test_another_router_knows_what_the_first_has_learnt(index: Redis, route: Part) -> None:
    said = ["Where is Rome?", "In Italy.", "And Paris?", "In France.", "And Oslo?"]
    home = chat(route.url, *said).headers["x-leftoff-replica"]
    other = router(index.url)
    try:
        assert until(lambda: len(known(other)) == 2 and held(other) == held(route) > 0)
        for _ in range(2):
            answer = chat(other.url, *said, "In Norway.", "And Bern?")
            assert answer.headers["x-leftoff-replica"] == home
    finally:
        other.close()


def test_replicas_that_are_known_stay_when_nobody_lists_them_any_more(replicas: list[Part]) -> None:
    asked = 0

    async def find(_: Fleet) -> list[str]:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise ConnectionError("whoever lists them is gone")
        return [replicas[0].url]

    async def play() -> list[str]:
        app = RouterApp(find_urls=find, health_s=0.05)
        app.start()
        async with asyncio.timeout(PATIENCE_S):
            while asked < 3:
                await asyncio.sleep(0.05)
        ids = [view.id for view in app.fleet.candidates("")]
        await app.close()
        return ids

    assert asyncio.run(play()) == [replicas[0].url]


def test_a_health_that_is_no_text_does_not_end_the_asking() -> None:
    told = [b'{"models": [{"name": "\xff"}]}', b'{"models": [{"name": "tiny"}]}']

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        content = told.pop(0) if len(told) > 1 else told[0]
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(content) + content)
        writer.close()

    async def play() -> list[str]:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            urls = [f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"]
            app = RouterApp(find_urls=listed(urls), health_s=0.05)
            app.start()
            async with asyncio.timeout(PATIENCE_S):
                while not app.fleet.models:
                    await asyncio.sleep(0.05)
            await app.close()
        return app.fleet.models

    assert asyncio.run(play()) == ["tiny"]


def test_a_replica_that_stops_is_left_out_and_its_conversation_goes_on(route: Part, replicas: list[Part]) -> None:
    said = ["My name is Bob."]
    first = chat(route.url, *said)
    home = first.headers["x-leftoff-replica"]
    url = next(each["url"] for each in known(route) if each["id"] == home)
    next(part for part in replicas if part.url == url).close()
    said += [first.json()["choices"][0]["message"]["content"], "What is my name?"]
    answer = chat(route.url, *said)
    assert answer.status_code == 200
    assert answer.headers["x-leftoff-replica"] != home


def test_without_the_index_requests_are_answered_on(index: Redis, route: Part) -> None:
    index.kill()
    assert until(lambda: httpx.get(f"{route.url}/cluster", timeout=PATIENCE_S).json()["index"] == "unreachable")
    assert chat(route.url, "Are you there?").status_code == 200
    assert "leftoff_route_index_up 0.0" in httpx.get(f"{route.url}/metrics", timeout=PATIENCE_S).text
    index.start()
    assert until(lambda: httpx.get(f"{route.url}/cluster", timeout=PATIENCE_S).json()["index"] == "ok")
    assert chat(route.url, "And now?").status_code == 200
