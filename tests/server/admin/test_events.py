"""The stream of events: what it tells, to whom, and that nothing waits for it."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.server.server import serving
from tests.patience import PATIENCE_S, until
from tests.server.fixtures import settings
from tests.server.test_hosts import served

CHAT = {"messages": [{"role": "user", "content": "where does the road end"}], "max_tokens": 4}


def events(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    name = ""
    for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def test_a_request_is_told_with_its_report(http: httpx.Client, host: ModelHost) -> None:
    assert host.log.watchers == []
    with http.stream("GET", "/cache/events") as stream:
        told = events(stream.iter_lines())
        name, state = next(told)
        assert name == "state"
        assert [tier["name"] for tier in state["tiers"]] == ["RAM"]
        assert len(state["slots"]) == 4
        reply = http.post("/v1/chat/completions", json=CHAT).json()
        report = next(content for name, content in told if name == "request")
        assert report["id"] == reply["id"]
        assert report == http.get("/cache/requests?n=1").json()["requests"][0]
        state = next(content for name, content in told if name == "state" and content["totals"]["requests"])
        assert state["totals"]["computed_tokens"] >= report["computed"]
    assert until(lambda: host.log.watchers == [])


def test_one_request_is_told_message_by_message(http: httpx.Client) -> None:
    messages = [{"role": "system", "content": "an old man " * 20}, *CHAT["messages"]]  # type: ignore[misc]
    http.post("/v1/chat/completions", json=CHAT | {"messages": messages})
    reply = http.post(
        "/v1/chat/completions", json=CHAT | {"messages": [*messages[:1], {"role": "user", "content": "a map"}]}
    )
    report = http.get(f"/cache/requests/{reply.json()['id']}").json()
    assert [message["role"] for message in report["messages"]] == ["system", "user", "opening"]
    assert sum(message["tokens"] for message in report["messages"]) == report["prompt_tokens"]
    totals: dict[str, int] = {}
    for message in report["messages"]:
        assert sum(message["origins"].values()) == message["tokens"]
        for origin, tokens in message["origins"].items():
            totals[origin] = totals.get(origin, 0) + tokens
    assert totals == report["origins"]
    assert sum(totals.get(origin, 0) for origin in ("live", "shared", "RAM", "disk", "read ahead")) == report["reused"]
    assert {reason: totals[reason] for reason in report["reasons"]} == report["reasons"]
    assert http.get("/cache/requests/none").json()["error"]["code"] == "not_found"


@pytest.fixture(scope="module")
def locked() -> Iterator[str]:
    with open_host(settings(api_key=("first", "second"))) as host, serving(host) as url:
        yield url


def test_a_key_is_told_of_its_own_requests_alone(locked: str) -> None:
    first, second = ({"x-api-key": key} for key in ("first", "second"))
    with httpx.Client(base_url=locked, timeout=PATIENCE_S) as http:
        assert http.get("/cache/events").status_code == 401
        with http.stream("GET", "/cache/events", headers=first) as stream:
            told = events(stream.iter_lines())
            assert next(told)[0] == "state"
            other = http.post("/v1/chat/completions", json=CHAT, headers=second).json()
            own = http.post("/v1/chat/completions", json=CHAT, headers=first).json()
            assert next(content for name, content in told if name == "request")["id"] == own["id"]
        assert http.get(f"/cache/requests/{other['id']}", headers=first).status_code == 404
        assert http.get("/cache/tree", headers=first).json() != http.get("/cache/tree", headers=second).json()


def test_no_stop_waits_for_one_who_looks(caplog: pytest.LogCaptureFixture) -> None:
    with open_host(settings()) as host, httpx.Client(timeout=PATIENCE_S) as http:
        with serving(host) as url:
            stream = http.send(http.build_request("GET", f"{url}/cache/events"), stream=True)
            assert next(events(stream.iter_lines()))[0] == "state"
        stream.close()
        assert host.log.watchers == []
    assert not [line for line in caplog.messages if "graceful shutdown exceeded" in line]


def test_the_stream_of_a_model_that_is_closed_ends() -> None:
    with served("llama", "qwen35", most=2) as (url, models):
        host = models[1].open()
        with httpx.stream("GET", f"{url}/cache/events?model=qwen35", timeout=PATIENCE_S) as stream:
            told = events(stream.iter_lines())
            assert next(told)[0] == "state"
            host.close()
            assert not [name for name, _ in told if name != "state"]


def test_a_model_that_is_closed_is_shown_no_more() -> None:
    with served("llama", "qwen35", most=2) as (url, models):
        host = models[1].open()
        with httpx.stream("GET", f"{url}/cache/events", timeout=PATIENCE_S) as stream:
            told = events(stream.iter_lines())
            assert {slot["model"] for slot in next(told)[1]["slots"]} == {"llama", "qwen35"}
            host.close()
            assert {slot["model"] for slot in next(told)[1]["slots"]} == {"llama"}
