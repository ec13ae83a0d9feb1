"""Lists and texts of a request have limits, in every dialect, and errors name the client's own field."""

from typing import Any

import httpx
import pytest

MESSAGES = [{"role": "user", "content": "Hello"}]
STOPS = [f"stop {number}" for number in range(200_000)]
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
CHATS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 2},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 2},
    "/v1/responses": {"input": "Hello", "max_output_tokens": 2},
    "/api/chat": {"messages": MESSAGES, "options": {"num_predict": 2}},
    "/completion": {"prompt": "Hello", "n_predict": 2},
    "/v1/completions": {"prompt": "Hello", "max_tokens": 2},
}
BIASES = {str(number): 1 for number in range(100_000)}


@pytest.mark.parametrize(
    ("path", "fields", "problem"),
    [
        ("/v1/chat/completions", {"stop": STOPS}, "stop: must be a list of at most 128"),
        ("/v1/completions", {"stop": STOPS}, "stop: must be a list of at most 128"),
        ("/completion", {"stop": STOPS}, "stop: must be a list of at most 128"),
        ("/v1/messages", {"stop_sequences": STOPS}, "stop_sequences: must be a list of at most 128"),
        ("/v1/responses", {"stop": STOPS}, "stop: must be a list of at most 128"),
        ("/api/chat", {"options": {"stop": STOPS}}, "options.stop: must be a list of at most 128"),
        ("/v1/chat/completions", {"stop": ["a", "x" * 300]}, "stop[1]: must be a text of at most 256 characters"),
        ("/v1/chat/completions", {"stop": "x" * 300}, "stop: must be a text of at most 256 characters"),
        ("/v1/chat/completions", {"logit_bias": BIASES}, "logit_bias: must be an object of at most 65536"),
        ("/completion", {"logit_bias": [[1, 1]] * 100_000}, "logit_bias: must be a list of at most 65536"),
        ("/completion", {"logit_bias": [["river", 1]] * 2000}, "logit_bias: has 2000 texts: must be at most 1024"),
        ("/completion", {"logit_bias": {"x" * 500: 1}}, "logit_bias: has a text of 500 characters"),
        ("/completion", {"dry_sequence_breakers": STOPS}, "dry_sequence_breakers: must be a list of at most 32"),
        ("/completion", {"samplers": ["top_k"] * 1000}, "samplers: must be a list of at most 64"),
        ("/v1/chat/completions", {"tools": [TOOL] * 5000}, "tools: must be a list of at most 1024"),
        ("/v1/messages", {"tools": [{"name": "look"}] * 5000}, "tools: must be a list of at most 1024"),
        ("/v1/responses", {"tools": [TOOL] * 5000}, "tools: must be a list of at most 1024"),
        ("/api/chat", {"tools": [TOOL] * 5000}, "tools: must be a list of at most 1024"),
        ("/v1/chat/completions", {"messages": MESSAGES * 20_000}, "messages: must be a list of at most 16384"),
        ("/v1/messages", {"messages": MESSAGES * 20_000}, "messages: must be a list of at most 16384"),
        ("/v1/responses", {"input": MESSAGES * 20_000}, "input: must be a list of at most 16384"),
        ("/api/chat", {"messages": MESSAGES * 20_000}, "messages: must be a list of at most 16384"),
        ("/v1/completions", {"prompt": ["a"] * 1000, "n": 100}, "n: 1000 prompts with 100 replies each are too many"),
    ],
)
def test_too_many_or_too_long_is_refused_by_name(
    http: httpx.Client, path: str, fields: dict[str, Any], problem: str
) -> None:
    reply = http.post(path, json=CHATS[path] | fields)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert problem in (error if isinstance(error, str) else error["message"])


@pytest.mark.parametrize(
    ("path", "fields", "problem"),
    [
        ("/v1/chat/completions", {"temperature": -1}, "temperature: is -1: must be at least 0.0"),
        ("/v1/chat/completions", {"n": 500.0}, "n: is 500.0: must be at most 128"),
        ("/v1/chat/completions", {"lora": [{"id": 0, "scale": 1e9}]}, "lora[0].scale: is 1000000000.0: must be"),
        ("/completion", {"logit_bias": [[1, 2], [1, 1e9]]}, "logit_bias[1][1]: is 1000000000.0: must be at most"),
        ("/completion", {"logit_bias": {"1": 1e9}}, "logit_bias[...]: must be a number of at most 1000000.0"),
        ("/api/chat", {"options": {"num_predict": -3}}, "options.num_predict: is -3: must be at least -2"),
        (
            "/v1/responses",
            {"input": [{"content": [{"text": 1}]}]},
            "input[0].content[0].text: must be a text, not",
        ),
    ],
)
def test_a_number_beyond_its_limit_is_told_with_it(
    http: httpx.Client, path: str, fields: dict[str, Any], problem: str
) -> None:
    reply = http.post(path, json=CHATS[path] | fields)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert (error if isinstance(error, str) else error["message"]).startswith(problem)


def test_a_number_in_a_body_that_breaks_off_is_refused_without_it(http: httpx.Client) -> None:
    error = http.post("/completion", content=b'{"prompt": "a", "top_p": 2,').json()["error"]
    assert error["message"] == "top_p: must be a number of at most 1.0"


@pytest.mark.parametrize("path", CHATS)
def test_what_agents_send_is_taken(http: httpx.Client, path: str) -> None:
    stops = [f"\n<|{number}|>" for number in range(32)]
    more: dict[str, Any] = {"stop": stops, "logit_bias": {str(number): -1 for number in range(300)}}
    if path == "/api/chat":
        more = {"options": CHATS[path]["options"] | more}
    assert http.post(path, json=CHATS[path] | more).status_code == 200
