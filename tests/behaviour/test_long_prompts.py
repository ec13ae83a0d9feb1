"""A prompt that cannot fit is refused before it is tokenised, and no long prompt keeps a short one waiting."""

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from leftoff.host.host import ModelHost
from leftoff.server.http.body import MAX_VALUES
from tests.patience import PATIENCE_S, until
from tests.server.fixtures import CONTEXT_TOKENS

LONG = "x y " * 100_000
RECIPE = "x y " * 7_800_000  # 30 MB, just below the limit of bodies


def chat(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 2}


def prompts(text: str) -> dict[str, dict[str, Any]]:
    return {
        "/v1/chat/completions": chat(text),
        "/v1/completions": {"prompt": text, "max_tokens": 2},
        "/v1/responses": {"input": text, "max_tokens": 2},
        "/v1/messages": chat(text),
        "/v1/messages/count_tokens": chat(text),
        "/api/chat": chat(text) | {"options": {"num_predict": 2}},
        "/api/generate": {"prompt": text, "options": {"num_predict": 2}},
        "/completion": {"prompt": ["short", text], "n_predict": 2},
        "/cache/prewarm": chat(text),
    }


def error_of(reply: httpx.Response) -> str:
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    return str(error if isinstance(error, str) else error["message"])


@pytest.mark.parametrize("path", [*prompts("")])
def test_what_cannot_fit_is_not_tokenised(host: ModelHost, http: httpx.Client, path: str) -> None:
    before = host.prompts.tokenizer.num_characters
    error = error_of(http.post(path, json=prompts(LONG)[path]))
    assert "the prompt has about " in error
    assert f"the context holds {CONTEXT_TOKENS}" in error
    assert host.prompts.tokenizer.num_characters - before < 100


def test_a_template_is_applied_to_what_does_not_fit_but_not_to_any_amount(http: httpx.Client) -> None:
    """Clients count a conversation that they are about to shorten."""
    assert LONG.strip() in http.post("/apply-template", json=chat(LONG)).json()["prompt"]
    assert "about" in error_of(http.post("/apply-template", json=chat(20 * LONG)))


def test_a_raw_prompt_of_ollama_too(host: ModelHost, http: httpx.Client) -> None:
    before = host.prompts.tokenizer.num_characters
    assert "about" in error_of(http.post("/api/generate", json={"prompt": LONG, "raw": True}))
    assert host.prompts.tokenizer.num_characters == before


def test_a_little_too_long_is_counted_exactly(http: httpx.Client) -> None:
    text = "the river " * 3000
    exact = len(http.post("/tokenize", json={"content": text}).json()["tokens"])
    counted = http.post("/v1/messages/count_tokens", json=chat(text)).json()["input_tokens"]
    assert exact < counted < exact + 20
    assert f"the prompt has {exact} tokens; the" in error_of(http.post("/completion", json={"prompt": text}))


def test_far_too_long_is_estimated(http: httpx.Client) -> None:
    """Claude Code reads the number and drops as many messages."""
    text = "the river " * 20_000
    exact = len(http.post("/tokenize", json={"content": text}).json()["tokens"])
    error = error_of(http.post("/v1/messages", json={**chat(text), "max_tokens": 8}))
    told = re.match(rf"prompt is too long: (\d+) tokens > {CONTEXT_TOKENS} maximum", error)
    assert told
    assert int(told[1]) == pytest.approx(exact, rel=0.02)


def test_tokens_are_made_of_longer_texts_than_prompts_but_not_of_any(http: httpx.Client) -> None:
    document = "the river " * 20_000
    assert len(http.post("/tokenize", json={"content": document}).json()["tokens"]) > CONTEXT_TOKENS
    error = error_of(http.post("/tokenize", json={"content": "x y " * 1_000_000}))
    assert error.startswith("content: has more than the 131072 tokens")


def test_a_list_of_ids_is_refused_by_its_length(http: httpx.Client) -> None:
    error = error_of(http.post("/v1/completions", json={"prompt": [1] * 5000}))
    assert "the prompt has 5000 tokens" in error


def test_prompts_together_have_a_limit_too(http: httpx.Client) -> None:
    prompt = "x y " * 1000
    assert "prompt: the first " in error_of(http.post("/v1/completions", json={"prompt": [prompt] * 1000}))


def test_a_body_of_too_many_values_is_not_decoded(http: httpx.Client) -> None:
    body = b'{"prompt": [' + b"[]," * MAX_VALUES + b"1]}"
    assert f"more than {MAX_VALUES} values" in error_of(http.post("/v1/completions", content=body))
    text = json.dumps({"prompt": "a, b [" * MAX_VALUES})
    assert "the prompt has about" in error_of(http.post("/v1/completions", content=text))


def test_nor_are_the_arguments_of_a_call(http: httpx.Client) -> None:
    """Which are JSON inside of a text."""

    def called(arguments: str) -> dict[str, Any]:
        call = {"id": "call00001", "type": "function", "function": {"name": "look", "arguments": arguments}}
        turns = [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "It is there."},
        ]
        return {"messages": [*chat("Look!")["messages"], *turns], "max_tokens": 2}

    values = json.dumps({"a": [[]] * 100_000})
    assert "too many values" in error_of(http.post("/v1/chat/completions", json=called(values)))
    text = json.dumps({"a": "[], " * 100_000})
    assert "the prompt has about" in error_of(http.post("/v1/chat/completions", json=called(text)))


@contextmanager
def long_work(host: ModelHost) -> Iterator[None]:
    """The thread for long prompts is busy for the length of the block."""
    begun, end = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        end.wait(PATIENCE_S)

    host.lanes.later(work, 1 << 30)
    assert begun.wait(PATIENCE_S)
    try:
        yield
    finally:
        end.set()


def test_a_short_prompt_does_not_wait_for_a_long_one(host: ModelHost, http: httpx.Client) -> None:
    with long_work(host):
        for path, body in prompts("Hello").items():
            if path != "/cache/prewarm":
                assert http.post(path, json=body).status_code == 200
        assert http.post("/tokenize", json={"content": "Hello"}).status_code == 200


def test_the_longest_body_there_is_beside_a_short_prompt(host: ModelHost, http: httpx.Client, url: str) -> None:
    before = host.prompts.tokenizer.num_characters
    refused: list[httpx.Response] = []
    body = json.dumps(chat(RECIPE))

    def ask() -> None:
        refused.append(httpx.post(f"{url}/v1/chat/completions", content=body, timeout=PATIENCE_S))

    asking = threading.Thread(target=ask)
    asking.start()
    assert http.post("/v1/chat/completions", json=chat("Hello")).status_code == 200
    asking.join()
    assert "about" in error_of(refused[0])
    assert host.prompts.tokenizer.num_characters - before < 1000


def test_work_for_a_client_that_left_is_not_done(host: ModelHost, url: str) -> None:
    name, port = url.removeprefix("http://").split(":")
    body = json.dumps({"prompt": "the old bridge " * 50, "user": "x" * 100_000}).encode()
    before = host.prompts.tokenizer.num_characters
    with long_work(host):
        with socket.create_connection((name, int(port)), timeout=PATIENCE_S) as connection:
            head = f"POST /v1/completions HTTP/1.1\r\nHost: {name}\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            assert until(lambda: host.lanes.num_running == 2)
        assert until(lambda: host.lanes.num_running == 1)
    assert until(lambda: host.lanes.num_running == 0)
    assert host.prompts.tokenizer.num_characters == before
