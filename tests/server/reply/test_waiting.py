"""A request waits for its model to be opened: streams show that they live, and who leaves is not waited for."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any

import httpx
import pytest

from leftoff.chat.work import _LONG_BYTES
from leftoff.host.host import ModelHost
from leftoff.host.late_host import LateHost
from leftoff.scheduler.gate import Gate
from leftoff.server.reply.response import EventStream
from tests.patience import PATIENCE_S, POLL_S, until
from tests.server.test_hosts import SAID, ask, opened, served

MESSAGES = [{"role": "user", "content": "Where does the road go?"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 2},
    "/v1/completions": {"prompt": SAID, "max_tokens": 2},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 2},
    "/v1/responses": {"input": "Where does the road go?", "max_output_tokens": 16},
    "/api/chat": {"messages": MESSAGES, "options": {"num_predict": 2}},
    "/api/generate": {"prompt": SAID, "options": {"num_predict": 2}},
    "/completion": {"prompt": SAID, "n_predict": 2},
}
ENDS = ("[DONE]", "message_stop", "response.incomplete", "response.completed", '"done":true', '"stop":true')


@pytest.fixture(scope="module")
def two_models() -> Iterator[tuple[str, LateHost]]:
    """A server, and its second model."""
    with served("llama", "qwen35", most=2) as (url, models):
        yield url, models[1]


@contextmanager
def taking_its_time(late: LateHost, **changes: object) -> Iterator[Event]:
    """The model is being opened until the event is set. In the end it is closed."""
    goes_on = Event()

    def make(gate: Gate) -> ModelHost:
        assert goes_on.wait(PATIENCE_S)
        return opened("qwen35", changes, gate)

    assert late.opened is None
    late._make = make
    try:
        yield goes_on
    finally:
        goes_on.set()
        if late.host is not None:
            late.host.close()


@pytest.mark.parametrize("path", BODIES)
def test_a_stream_lives_while_its_model_is_opened(
    two_models: tuple[str, LateHost], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EventStream, "silent_seconds", 0.01)
    body = BODIES[path] | {"model": "qwen35", "stream": True}
    url, late = two_models
    with (
        taking_its_time(late) as goes_on,
        httpx.stream("POST", f"{url}{path}", json=body, timeout=PATIENCE_S) as response,
    ):
        assert response.status_code == 200
        parts = response.iter_bytes()
        signs = next(parts) + next(parts)
        assert signs.strip()
        goes_on.set()
        text = (signs + b"".join(parts)).decode()
    assert any(end in text for end in ENDS), text
    if path.startswith("/api/"):
        assert all(json.loads(line)["model"] == "qwen35:latest" for line in text.splitlines())


@pytest.mark.parametrize("path", BODIES)
def test_a_stream_that_waited_for_a_broken_model_says_so(
    two_models: tuple[str, LateHost], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EventStream, "silent_seconds", 0.01)
    body = BODIES[path] | {"model": "qwen35", "stream": True}
    url, late = two_models
    with taking_its_time(late, model="nowhere.gguf") as goes_on:
        with httpx.stream("POST", f"{url}{path}", json=body, timeout=PATIENCE_S) as response:
            parts = response.iter_bytes()
            next(parts)
            goes_on.set()
            text = b"".join(parts).decode()
        assert "there is no model file at nowhere.gguf" in text
        assert "error" in text
        assert "choices" in ask(url, "llama", SAID)


@pytest.mark.parametrize("stream", [False, True])
def test_what_nobody_waits_for_is_not_opened(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EventStream, "silent_seconds", 0.01)
    monkeypatch.setattr("leftoff.host.late_host._ASK_S", POLL_S)
    body = {"model": "qwen35", "prompt": SAID, "stream": stream}
    with served("llama", "qwen35", "gemma3", most=1) as (url, models):
        made: list[str] = []
        models[1]._make = lambda gate: made.append("qwen35") or opened("qwen35", {}, gate)  # type: ignore[func-returns-value]
        with pytest.MonkeyPatch.context() as busy:
            busy.setattr(models[0].seat, "gives_way", lambda _: False)
            with (
                suppress(httpx.ReadTimeout),
                httpx.Client(timeout=0.3) as leaving,
                leaving.stream("POST", f"{url}/v1/completions", json=body) as response,
            ):
                parts = response.iter_bytes()  # which leaves when it is gone
                next(parts)
                assert models[1].status == "loading"
            assert until(lambda: models[1].seat.asked_at is None)
            assert until(lambda: models[1].status == "unloaded")
        assert "choices" in ask(url, "gemma3", SAID)
        assert made == []


def test_the_line_of_a_request_tells_what_it_has_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "leftoff")
    long = {"model": "llama", "prompt": SAID, "max_tokens": 400, "ignore_eos": True, "stream": True}
    with served("llama", "qwen35", most=1) as (url, models):
        for _ in range(2):  # at first it is opened, and then it is woken
            with httpx.stream("POST", f"{url}/v1/completions", json=long, timeout=PATIENCE_S) as busy:
                parts = busy.iter_bytes()
                next(parts)
                models[0].seat.taken_at = -1e9  # its turn is over once this has ended
                ask(url, "qwen35", SAID)
            record = httpx.get(f"{url}/cache/requests", timeout=PATIENCE_S).json()["requests"][0]
            assert record["waited_for"].startswith("qwen35 was loading (")
            assert record["waited_for"].endswith(" s), llama was busy")
            assert f"waited {record['waited_ms'] / 1000:.1f} s: {record['waited_for']}" in caplog.text
            assert ask(url, "llama", SAID)["choices"]


def test_whoever_waited_until_its_model_was_open_is_answered_before_that_sleeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("leftoff.host.late_host._ASK_S", POLL_S)
    goes_on = Event()
    replies: dict[str, Any] = {}

    def wait() -> None:
        goes_on.wait(PATIENCE_S)

    def make(gate: Gate) -> ModelHost:
        host = opened("qwen35", {}, gate)
        host.lanes.later(wait, 0)  # short requests are not read until then
        return host

    def asking(name: str, model: str, num_more_bytes: int = 0) -> Thread:
        body = {"model": model, "prompt": f"{SAID}{name}", "max_tokens": 2, "user": "x" * num_more_bytes}

        def send() -> None:
            replies[name] = httpx.post(f"{url}/v1/completions", json=body, timeout=PATIENCE_S).json()

        thread = Thread(target=send)
        thread.start()
        return thread

    with served("llama", "qwen35", most=1) as (url, models):
        models[1]._make = make
        seat = models[1].seat
        threads = [asking("guest", "qwen35"), asking("long guest", "qwen35", _LONG_BYTES)]
        try:
            assert until(lambda: "long guest" in replies)
            host = models[1].open()
            threads.append(asking("another", "llama"))
            assert until(lambda: models[0].seat.asked_at is not None)
            seat.woke_at = seat.taken_at = -1e9  # its turn is over
            threads.append(asking("late", "qwen35", _LONG_BYTES))
            assert until(lambda: host.scheduler.num_waiting)
            host.rest().result(PATIENCE_S)
            assert not host.engine.is_asleep
        finally:
            goes_on.set()
            for thread in threads:
                thread.join()
    assert all("choices" in reply for reply in replies.values())
    assert [*replies] == ["long guest", "guest", "another", "late"]
