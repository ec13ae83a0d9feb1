"""Volatile headers and conversations that outgrow the window, over HTTP: done, and said."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from tests.server.fixtures import settings

CONTEXT_TOKENS = 1024


@pytest.fixture(scope="module")
def host() -> Iterator[ModelHost]:
    with open_host(settings(ctx=CONTEXT_TOKENS, overflow="cut", pin=(r"session \d+",), move=(r"tree: \w+",))) as host:
        yield host


def ask(http: httpx.Client, system: str, *turns: str) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(turns)]
    body = {"messages": [{"role": "system", "content": system}, *messages], "max_tokens": 1}
    reply = http.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    timings: dict[str, Any] = reply.json()["timings"]
    return timings


def notes(http: httpx.Client) -> str:
    return " ".join(http.get("/cache/requests?n=1").json()["requests"][0]["notes"])


def test_the_billing_line_is_dropped(http: httpx.Client) -> None:
    lamp = "you keep a lamp in the window " * 8
    ask(http, f"x-anthropic-billing-header: cch=1a2b3;\n{lamp}", "hello")
    assert ask(http, f"x-anthropic-billing-header: cch=9f8e7;\n{lamp}", "hello")["prompt_n"] <= 1
    assert "x-anthropic-billing-header" in notes(http)


def test_what_is_pinned_stays(http: httpx.Client) -> None:
    ask(http, "session 17, an old man keeps a lamp " * 8, "hello")
    assert ask(http, "session 99, an old man keeps a lamp " * 8, "hello")["prompt_n"] <= 1


def test_what_is_moved_stands_behind_the_header(http: httpx.Client) -> None:
    lamp = "an old woman keeps a lamp " * 8
    ask(http, f"tree: clean\n{lamp}", "hello")
    changed = ask(http, f"tree: dirty\n{lamp}", "hello")
    assert changed["cache_n"] > changed["prompt_n"]
    assert ask(http, f"tree: dirty\n{lamp}", "hello")["prompt_n"] <= 1
    assert notes(http) == "moved 1 text"


def test_a_header_that_changes_is_named_with_the_way_out(http: httpx.Client) -> None:
    for clock in ("2026-01-02 10:11:12", "2026-01-02 10:12:37"):
        ask(http, f"the time is {clock}\n" + "an old man keeps a lamp " * 8, "hello")
    report = http.get("/cache/requests?n=1").json()["requests"][0]
    assert report["difference"] == "volatile header"
    assert "--move" in notes(http)


def test_a_chat_that_outgrows_the_window_is_cut_once(http: httpx.Client) -> None:
    turns = ["the river runs down from the hill to the town and on to the sea " * 4] * 25
    first = ask(http, "be short", *turns)
    assert first["cache_n"] + first["prompt_n"] < CONTEXT_TOKENS
    assert "oldest messages are left out" in notes(http)
    second = ask(http, "be short", *turns, "the end", "and then")
    assert second["cache_n"] >= first["prompt_n"] - 20, "the next turn begins with the same tokens"
