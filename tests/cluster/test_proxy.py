"""The router over two replicas: all dialects, streams, a replica that dies, and one that is busy."""

import asyncio
import json
import socket
from collections.abc import Iterator

import anthropic
import httpx
import openai
import pytest

from lab.bench.process import Process
from leftoff.cluster.app import RouterApp
from leftoff.cluster.chain import REPLICA
from leftoff.cluster.proxy import Proxy
from leftoff.cluster.replica import Replica
from leftoff.server.reply import points
from tests.cluster import here, processes
from tests.cluster.here import Part
from tests.patience import PATIENCE_S, until

HEADER = "You are a helpful assistant. " * 40


@pytest.fixture(scope="module")
def mortal() -> Iterator[Process]:
    """A replica in a process of its own, which can be killed."""
    process = processes.replica()
    yield process
    process.close()


@pytest.fixture(scope="module")
def replicas(mortal: Process) -> Iterator[list[Part | Process]]:
    part = here.replica()
    yield [part, mortal]
    part.close()


@pytest.fixture(scope="module")
def route(replicas: list[Part | Process]) -> Iterator[Part]:
    part = here.router(replicas=[each.url for each in replicas])
    assert until(lambda: len(known(part)) == 2)
    yield part
    part.close()


def known(route: Part | Process, headers: dict[str, str] | None = None) -> list[dict[str, object]]:
    groups = httpx.get(f"{route.url}/cluster", headers=headers, timeout=PATIENCE_S).json()["groups"]
    return [each for group in groups for each in group["replicas"] if each["state"] == "ready"]


def chat(url: str, *messages: str, **fields: object) -> httpx.Response:
    roles = ("user", "assistant")
    headers = fields.pop("headers", None)
    said = [{"role": roles[index % 2], "content": text} for index, text in enumerate(messages)]
    body = {"messages": [{"role": "system", "content": HEADER}, *said], "max_tokens": 8, "temperature": 0, **fields}
    return httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=PATIENCE_S)  # type: ignore[arg-type]


def test_an_answer_is_as_a_replica_gives_it(replicas: list[Part | Process], route: Part) -> None:
    through, straight = chat(route.url, "Hello"), chat(replicas[0].url, "Hello")
    assert through.status_code == 200
    assert through.json()["choices"] == straight.json()["choices"]
    assert through.headers[REPLICA] in {each.url for each in replicas}
    assert "x-leftoff-points" not in through.headers


def test_a_replica_tells_where_a_prompt_may_be_resumed_with_an_index_or_without(replicas: list[Part | Process]) -> None:
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
    answer = httpx.post(
        f"{replicas[0].url}/v1/chat/completions", json=body, headers={points.HEADER: "1"}, timeout=PATIENCE_S
    )
    told = points.decode_points(answer.headers[points.HEADER])
    assert told is not None
    assert told.length == told.points[-1].position == answer.json()["usage"]["prompt_tokens"]


def test_a_conversation_stays_where_its_state_is(route: Part) -> None:
    said, homes, computed = ["My name is Ada."], set(), []
    for question in ("What is my name?", "Say it again.", "And once more."):
        answer = chat(route.url, *said)
        homes.add(answer.headers[REPLICA])
        computed.append(answer.json()["timings"]["prompt_n"])
        said += [answer.json()["choices"][0]["message"]["content"], question]
    assert len(homes) == 1
    assert max(computed[1:]) < 60


def test_streams_and_dialects_pass_through(route: Part) -> None:
    with openai.OpenAI(base_url=f"{route.url}/v1", api_key="any", max_retries=0, timeout=PATIENCE_S) as client:
        chunks = client.chat.completions.create(
            model="any", messages=[{"role": "user", "content": "Hello"}], stream=True, max_tokens=8
        )
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        first = client.responses.create(model="any", input="My name is Ada.", max_output_tokens=16)
        second = client.responses.create(
            model="any", input="What is my name?", previous_response_id=first.id, max_output_tokens=16
        )
        assert second.previous_response_id == first.id
        assert client.responses.retrieve(first.id).id == first.id
        assert client.models.list().data
    with anthropic.Anthropic(base_url=route.url, api_key="any", max_retries=0, timeout=PATIENCE_S) as claude:
        said = claude.messages.create(model="any", max_tokens=8, messages=[{"role": "user", "content": "Hello"}])
        assert said.content
    lines = httpx.post(
        f"{route.url}/api/chat",
        json={"model": "any", "messages": [{"role": "user", "content": "Hello"}], "options": {"num_predict": 4}},
        timeout=PATIENCE_S,
    ).text.splitlines()
    assert json.loads(lines[-1])["done"] is True
    raw = httpx.post(f"{route.url}/completion", json={"prompt": "Once", "n_predict": 4}, timeout=PATIENCE_S)
    assert raw.json()["content"]


def test_what_a_replica_refuses_is_refused_in_its_words(replicas: list[Part | Process], route: Part) -> None:
    body = {"messages": [{"role": "user", "content": 3}]}
    answers = [
        httpx.post(f"{url}/v1/chat/completions", json=body, timeout=PATIENCE_S) for url in (route.url, replicas[0].url)
    ]
    assert answers[0].status_code == answers[1].status_code == 400
    assert answers[0].json() == answers[1].json()


def test_figures_for_prometheus(route: Part) -> None:
    text = httpx.get(f"{route.url}/metrics", timeout=PATIENCE_S).text
    assert "leftoff_route_decision_seconds_bucket" in text
    assert "leftoff_route_replica_up" in text


def test_a_replica_that_takes_connections_and_answers_nothing_is_left(
    replicas: list[Part | Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Proxy, "look_s", 0.05)
    monkeypatch.setattr(Proxy, "health_s", 0.05)

    async def play(mute_port: int) -> httpx.Response:
        app = RouterApp()
        app.start()
        app.fleet.beat(Replica("mute", f"http://127.0.0.1:{mute_port}"))
        app.fleet.beat(Replica("well", replicas[0].url))
        try:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
                return await client.post("/v1/completions", json={"prompt": "Once", "max_tokens": 1})
        finally:
            await app.close()

    with socket.create_server(("127.0.0.1", 0)) as mute:
        answer = asyncio.run(play(mute.getsockname()[1]))
    assert (answer.status_code, answer.headers[REPLICA]) == (200, "well")


def test_a_replica_that_is_killed(mortal: Process, route: Part) -> None:
    """One that had not begun is answered by the other replica; one that had ends with an error."""
    chat(route.url, "Tell me a story.", headers={REPLICA: mortal.url})
    body = {"messages": [{"role": "system", "content": HEADER}, {"role": "user", "content": "Tell me a story."}]}
    with httpx.stream(
        "POST",
        f"{route.url}/v1/chat/completions",
        json=body | {"stream": True, "max_tokens": 2000, "ignore_eos": True},
        timeout=PATIENCE_S,
    ) as stream:
        lines = stream.iter_lines()
        assert stream.headers[REPLICA] == mortal.url, "it has the state"
        assert next(lines).startswith("data: ")
        mortal.kill()
        last = [line for line in lines if line][-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "replica_failed"
    answer = chat(route.url, "Tell me a story.")
    assert answer.status_code == 200
    assert answer.headers[REPLICA] != mortal.url


def test_without_replicas_clients_are_told_to_come_back(replicas: list[Part | Process], route: Part) -> None:
    for each in replicas:
        each.close()
    answer = chat(route.url, "Hello")
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert "no replica" in answer.json()["error"]["message"]
