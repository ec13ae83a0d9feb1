"""A client that streams is kept while it waits, by what its dialect has for that, and its reply is the same."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import httpx
import ollama
import openai
import pytest

from leftoff.engine.errors import InputError
from leftoff.host.host import ModelHost
from leftoff.server.reply.response import EventStream, Replies
from tests.patience import PATIENCE_S, until

MESSAGES: Any = [{"role": "user", "content": "where does the river go"}]
SIGNS = 14  # enough for every kind of sign


@pytest.fixture
def signs(monkeypatch: pytest.MonkeyPatch) -> list[Replies]:
    """One entry for each sign of life that was asked for. They come as fast as the event loop can."""
    asked: list[Replies] = []
    wake = Replies.wake

    def counted(replies: Replies) -> None:
        asked.append(replies)
        wake(replies)

    monkeypatch.setattr(Replies, "wake", counted)
    monkeypatch.setattr(EventStream, "silent_seconds", 0.01)
    return asked


@contextmanager
def busy(host: ModelHost, signs: list[Replies]) -> Iterator[None]:
    """The engine does nothing until a client has been kept waiting for long."""
    may_go_on = threading.Event()
    host.call(may_go_on.wait)

    def release() -> None:
        until(lambda: len(signs) >= SIGNS)
        may_go_on.set()

    thread = threading.Thread(target=release)
    thread.start()
    yield
    thread.join()


def by_anthropic(url: str) -> str:
    with (
        anthropic.Anthropic(base_url=url, api_key="any", max_retries=0, timeout=PATIENCE_S) as claude,
        claude.messages.stream(model="m", messages=MESSAGES, max_tokens=8, extra_body={"temperature": 0}) as stream,
    ):
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert "".join(block.text for block in final.content if block.type == "text") == text
    assert all(block.thinking == "" for block in final.content if block.type == "thinking")
    assert final.usage.output_tokens == 8
    return text


def by_chat(url: str) -> str:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, timeout=PATIENCE_S) as client:
        stream = client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=8, temperature=0, stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in stream)


def by_responses(url: str) -> str:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, timeout=PATIENCE_S) as client:
        events = [*client.responses.create(model="m", input=MESSAGES, max_output_tokens=8, temperature=0, stream=True)]
    assert [event.sequence_number for event in events] == [*range(len(events))]
    assert [event.type for event in events].count("response.created") == 1
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")


def by_ollama(url: str) -> str:
    options = {"temperature": 0, "num_predict": 8}
    client = ollama.Client(url, timeout=PATIENCE_S)
    said = [chunk.message.content or "" for chunk in client.chat("m", MESSAGES, stream=True, options=options)]
    client.close()  # type: ignore[no-untyped-call]
    return "".join(said)


def by_llama_server(url: str) -> str:
    body = {"prompt": "where does the river go", "n_predict": 8, "temperature": 0, "stream": True}
    with httpx.stream("POST", f"{url}/completion", json=body, timeout=PATIENCE_S) as reply:
        lines = [*filter(None, reply.iter_lines())]
    assert {line.partition(" ")[0] for line in lines} <= {"data:", ":"}
    return "".join(line for line in lines if line != ":")


@pytest.mark.parametrize("ask", [by_anthropic, by_chat, by_responses, by_ollama])
def test_a_long_wait_changes_nothing_in_the_reply(
    host: ModelHost, url: str, signs: list[Replies], ask: Callable[[str], str]
) -> None:
    with busy(host, signs):
        waited = ask(url)
    assert len(signs) >= SIGNS
    assert waited == ask(url) != ""


def test_comments_stand_between_the_events_of_a_completion(host: ModelHost, url: str, signs: list[Replies]) -> None:
    with busy(host, signs):
        assert '"stop":true' in by_llama_server(url)


def test_the_signs_of_life_of_a_message(host: ModelHost, url: str, signs: list[Replies]) -> None:
    """Claude Code takes no ping for a sign of life: there is an empty thought among them, closed before the text."""
    body = {"messages": MESSAGES, "max_tokens": 2, "temperature": 0, "stream": True}
    with busy(host, signs), httpx.stream("POST", f"{url}/v1/messages", json=body, timeout=PATIENCE_S) as reply:
        names = [line.removeprefix("event: ") for line in reply.iter_lines() if line.startswith("event: ")]
    thought = ["content_block_start", "content_block_delta"]
    assert names[:9] == [*["ping"] * 5, "message_start", "ping", *thought]
    rest = [name for name in names[9:] if name != "ping"]
    waiting, said = rest[: rest.index("content_block_stop")], rest[rest.index("content_block_stop") :]
    assert waiting == ["content_block_delta"] * len(waiting), "a second one, and the signature"
    assert len(waiting) >= 2
    assert said[1:] == ["content_block_start", *said[2:-3], "content_block_stop", "message_delta", "message_stop"]


ASKED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": MESSAGES, "n": 2, "stream_options": {"include_usage": True}},
    "/v1/completions": {"prompt": "the river"},
    "/v1/responses": {"input": "the river"},
    "/v1/messages": {"messages": MESSAGES},
    "/api/chat": {"messages": MESSAGES},
    "/completion": {"prompt": "the river"},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ASKED)
def test_a_reply_that_fails_before_its_prompt_is_read_is_an_error(
    http: httpx.Client, host: ModelHost, monkeypatch: pytest.MonkeyPatch, path: str, stream: bool
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise InputError("no such river")

    monkeypatch.setattr(host.cache, "begin", fail)
    reply = http.post(path, json=ASKED[path] | {"stream": stream})
    assert reply.status_code == (200 if stream else 400)
    assert "no such river" in reply.text
