"""Bad input gets a 4xx in OpenAI's shape that names the field, and the server goes on."""

import json
import re
from random import Random
from typing import Any

import httpx
import pytest

from tests.server.fixtures import CONTEXT_TOKENS

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
HELLO = [{"role": "user", "content": "hello"}]
FINE: dict[str, dict[str, Any]] = {
    CHAT: {"messages": HELLO, "max_tokens": 1},
    TEXT: {"prompt": "hello", "max_tokens": 1},
    "/completion": {"prompt": "hello", "n_predict": 1},
    "/apply-template": {"messages": HELLO},
    "/tokenize": {"content": "hello"},
    "/detokenize": {"tokens": [1]},
}
SCHEMAS = {
    CHAT: "ChatRequest",
    TEXT: "CompletionRequest",
    "/completion": "NativeRequest",
    "/apply-template": "ChatRequest",
    "/tokenize": "TokenizeRequest",
    "/detokenize": "DetokenizeRequest",
}
UNKNOWN = {"type": "hologram", "url": "data:,"}
LONG = "the " * (CONTEXT_TOKENS + 1)

BAD: list[tuple[str, dict[str, Any], str]] = [
    (CHAT, {"messages": []}, "messages"),
    (CHAT, {"messages": "hello"}, "messages"),
    (CHAT, {"messages": [{"content": "hello"}]}, "messages[0].role"),
    (CHAT, {"messages": [*HELLO, {"role": "wizard", "content": "hello"}]}, "messages[1].role"),
    (CHAT, {"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
    (
        CHAT,
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "see"}, UNKNOWN]}]},
        "messages[0].content[1]",
    ),
    (
        CHAT,
        {"messages": [{"role": "assistant", "tool_calls": [{"function": "f"}]}]},
        "messages[0].tool_calls[0].function",
    ),
    (CHAT, {"messages": [{"role": "user", "content": LONG}]}, "messages"),
    (CHAT, {"tools": {"name": "f"}}, "tools"),
    (CHAT, {"tools": [{"type": "function", "function": {"parameters": {}}}]}, "tools[0].function.name"),
    (CHAT, {"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
    (CHAT, {"tools": [{"type": "function", "function": {"name": "f"}}, {}]}, "tools[1].function.name"),
    (CHAT, {"tool_choice": "required"}, "tool_choice"),
    (CHAT, {"chat_template_kwargs": []}, "chat_template_kwargs"),
    (CHAT, {"chat_template_kwargs": {"messages": 7}}, "messages"),
    (CHAT, {"temperature": -1}, "temperature"),
    (CHAT, {"temperature": "warm"}, "temperature"),
    (CHAT, {"temperature": 1e300}, "temperature"),
    (CHAT, {"top_p": 2}, "top_p"),
    (CHAT, {"min_p": -0.1}, "min_p"),
    (CHAT, {"top_k": 10**30}, "top_k"),
    (CHAT, {"repeat_penalty": 0}, "repeat_penalty"),
    (CHAT, {"repeat_last_n": -2}, "repeat_last_n"),
    (CHAT, {"frequency_penalty": 1e300}, "frequency_penalty"),
    (CHAT, {"presence_penalty": []}, "presence_penalty"),
    (CHAT, {"max_tokens": -2}, "max_tokens"),
    (CHAT, {"max_tokens": 2**40}, "max_tokens"),
    (CHAT, {"max_tokens": 1.5}, "max_tokens"),
    (CHAT, {"max_tokens": 1.0, "top_k": 20.5}, "top_k"),
    (CHAT, {"max_tokens": 1e300}, "max_tokens"),
    (CHAT, {"seed": 2**70}, "seed"),
    (CHAT, {"n": 0}, "n"),
    (CHAT, {"n": 10**6}, "n"),
    (CHAT, {"stop": 7}, "stop"),
    (CHAT, {"stream": "yes"}, "stream"),
    (CHAT, {"stream_options": True}, "stream_options"),
    (CHAT, {"logprobs": True, "top_logprobs": 1000}, "top_logprobs"),
    (CHAT, {"logit_bias": {"999999": 1}}, "logit_bias"),
    (CHAT, {"logit_bias": {"-3": 1}}, "logit_bias"),
    (CHAT, {"logit_bias": {"5": 1e300}}, "logit_bias[...]"),
    (CHAT, {"logit_bias": {"5": True}}, "logit_bias"),
    (CHAT, {"logit_bias": 5}, "logit_bias"),
    (CHAT, {"response_format": {"type": "xml"}}, "response_format.type"),
    (CHAT, {"logit_bias": {"9" * 5000: 1}}, "logit_bias"),
    (CHAT, {"mirostat": 3}, "mirostat"),
    (CHAT, {"mirostat_tau": -1}, "mirostat_tau"),
    (CHAT, {"typical_p": 1.5}, "typical_p"),
    (CHAT, {"top_n_sigma": 1e300}, "top_n_sigma"),
    (CHAT, {"xtc_probability": 2}, "xtc_probability"),
    (CHAT, {"dynatemp_range": -1}, "dynatemp_range"),
    (CHAT, {"dry_allowed_length": -1}, "dry_allowed_length"),
    (CHAT, {"dry_sequence_breakers": "\n"}, "dry_sequence_breakers"),
    (CHAT, {"dry_sequence_breakers": [""]}, "dry_sequence_breakers"),
    (CHAT, {"dry_sequence_breakers": ["a\0"]}, "dry_sequence_breakers"),
    (CHAT, {"dry_sequence_breakers": ["x"] * 17}, "dry_sequence_breakers"),
    (CHAT, {"samplers": ["top_k", "magic"]}, "samplers"),
    (CHAT, {"samplers": ["top_k", "top-k"]}, "samplers"),
    (CHAT, {"samplers": "kq"}, "samplers"),
    (CHAT, {"adaptive_target": 1.5}, "adaptive_target"),
    (CHAT, {"grammar": "root ::= lost"}, "grammar"),
    (CHAT, {"cache_salt": 7}, "cache_salt"),
    (TEXT, {"prompt": ""}, "prompt"),
    (TEXT, {"prompt": []}, "prompt"),
    (TEXT, {"prompt": None}, "prompt"),
    (TEXT, {"prompt": 7}, "prompt"),
    (TEXT, {"prompt": LONG}, "prompt"),
    (TEXT, {"prompt": ["fine", ""]}, "prompt[1]"),
    (TEXT, {"prompt": [1, -1]}, "prompt[1]"),
    (TEXT, {"prompt": [1, 10**9]}, "prompt[1]"),
    (TEXT, {"prompt": [[1], [2, 10**30]]}, "prompt[1][1]"),
    (TEXT, {"prompt": [1, True]}, "prompt[1]"),
    (TEXT, {"prompt": [1, 2.5]}, "prompt[1]"),
    (TEXT, {"prompt": ["a"] * 2000}, "prompt"),
    (TEXT, {"logprobs": -1}, "logprobs"),
    (TEXT, {"echo": True, "logprobs": 100, "prompt": [[1] * 3000] * 2}, "logprobs"),
    (TEXT, {"suffix": "end"}, "suffix"),
    (TEXT, {"best_of": 5}, "best_of"),
    ("/completion", {"n_predict": -5}, "n_predict"),
    ("/completion", {"n_probs": -1}, "n_probs"),
    ("/completion", {"response_format": {"type": "xml"}}, "response_format.type"),
    (TEXT, {"response_format": {"type": "xml"}}, "response_format.type"),
    ("/completion", {"prompt": {"prompt_string": "see", "multimodal_data": ["AA=="]}}, "prompt.multimodal_data"),
    ("/completion", {"json_schema": {"not": {}}}, "json_schema"),
    ("/apply-template", {"messages": [{"role": "wizard"}]}, "messages[0].role"),
    ("/tokenize", {"content": None}, "content"),
    ("/detokenize", {"tokens": [1, -1]}, "tokens[1]"),
    ("/detokenize", {"tokens": "1"}, "tokens"),
]


def refused(reply: httpx.Response, status: int = 400) -> dict[str, Any]:
    """The error, after a check that it has the shape."""
    assert reply.status_code == status, reply.text
    error: dict[str, Any] = reply.json()["error"]
    assert {"message", "type", "param", "code"} <= error.keys()
    assert error["message"]
    return error


@pytest.fixture(autouse=True)
def _server_goes_on(http: httpx.Client) -> Any:  # noqa: ANN401
    yield
    assert http.post(CHAT, json=FINE[CHAT]).status_code == 200


@pytest.mark.parametrize(("path", "fields", "param"), BAD, ids=lambda value: str(value)[:50])
def test_a_bad_field_is_named(http: httpx.Client, path: str, fields: dict[str, Any], param: str) -> None:
    error = refused(http.post(path, json=FINE[path] | fields))
    assert (error["type"], error["param"]) == ("invalid_request_error", param)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"messages": [*HELLO, {"role": "wizard"}]},
            "messages[1].role: is 'wizard': must be one of assistant, developer, function, system, tool, user",
        ),
        (
            {"reasoning_format": "loud"},
            "reasoning_format: is 'loud': must be one of auto, deepseek, deepseek-legacy, none",
        ),
        ({"messages": "hi"}, "messages: must be a list, not a text"),
        ({"messages": []}, "messages: must be a list of at least 1"),
        ({"temperature": "warm"}, "temperature: must be a number, not a text"),
        ({"stop": 7}, "stop: must be a text or a list, not a whole number"),
        ({"stream": "yes"}, "stream: must be true or false, not a text"),
    ],
)
def test_what_is_wrong_is_told_in_words_with_what_is_right(
    http: httpx.Client, fields: dict[str, Any], message: str
) -> None:
    assert refused(http.post(CHAT, json=FINE[CHAT] | fields))["message"] == message


@pytest.mark.parametrize("path", FINE)
def test_what_is_fine_is_taken(http: httpx.Client, path: str) -> None:
    assert http.post(path, json=FINE[path]).status_code == 200


@pytest.mark.parametrize("path", FINE)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"7",
        b"\xff\xfe",
        b'{"messages": [{"role": "user", "content": "\xff"}], "prompt": "\xff", "content": "\xff", "tokens": "\xff"}',
        b'{"messages": "\\ud800 ", "prompt": "\\ud800 ", "content": "\\ud800 ", "tokens": 1}',
        b'{"x": ' + b"[" * 100_000,
        b'{"max_tokens": 1e999, "messages": NaN}',
    ],
    ids=lambda body: repr(body[:30]),
)
def test_a_body_that_is_not_the_json_it_should_be(http: httpx.Client, path: str, body: bytes) -> None:
    refused(http.post(path, content=body))


def test_a_field_that_is_missing_is_named(http: httpx.Client) -> None:
    for path, fields in FINE.items():
        name = next(iter(fields))
        error = refused(http.post(path, json={"model": "tiny"}))
        assert (error["param"], error["code"]) == (name, "missing_field")


def test_a_prompt_that_does_not_fit_names_both_numbers(http: httpx.Client) -> None:
    for stream in (False, True):
        error = refused(http.post(TEXT, json={"prompt": [5] * CONTEXT_TOKENS, "stream": stream}))
        assert error["code"] == "context_length_exceeded"
        assert (error["n_prompt_tokens"], error["n_ctx"]) == (CONTEXT_TOKENS, CONTEXT_TOKENS)
        assert f"{CONTEXT_TOKENS} tokens" in error["message"]
    assert http.post(TEXT, json={"prompt": [5] * (CONTEXT_TOKENS - 1)}).json()["usage"]["completion_tokens"] == 1


def test_unknown_routes_and_wrong_methods(http: httpx.Client) -> None:
    assert "/v1/nothing" in refused(http.get("/v1/nothing"), 404)["message"]
    refused(http.get(CHAT), 405)
    refused(http.delete("/v1/models"), 405)
    refused(http.post("/cache", json={}), 405)


def test_unknown_fields_are_no_reason_to_refuse(http: httpx.Client) -> None:
    more = {"user": "me", "metadata": {}, "store": False, "service_tier": "auto", "mirostat": 0, "typical_p": 1.0}
    assert (
        http.post(CHAT, json=FINE[CHAT] | more | {"temperature": None, "stop": None, "tools": None}).status_code == 200
    )


@pytest.mark.parametrize("path", ["/api/chat", CHAT, "/v1/messages"])
def test_whole_numbers_may_be_written_with_a_point(http: httpx.Client, path: str) -> None:
    given = {"num_predict": 3, "top_k": 20, "seed": 5, "num_ctx": 4096} if path == "/api/chat" else None
    limits: dict[str, Any] = {"options": given} if given else {"max_tokens": 3, "top_k": 20, "seed": 5}
    whole = {"messages": HELLO, "stream": False, **limits}
    pointed = json.loads(re.sub(r"\b(\d+)\b", r"\1.0", json.dumps(whole)))
    assert "3.0" in str(pointed)
    told = [http.post(path, json=body) for body in (whole, pointed)]
    assert [reply.status_code for reply in told] == [200, 200], told[1].text
    words = [reply.json().get("message") or reply.json().get("content") or reply.json()["choices"] for reply in told]
    assert words[0] == words[1]


@pytest.mark.parametrize("path", ["/api/chat", CHAT, "/v1/messages"])
def test_numbers_of_tools_and_calls_may_be_of_any_size(http: httpx.Client, path: str) -> None:
    """Conversations and tools are known again by hashes of what they say."""
    schema = {"type": "object", "properties": {"a": {"minimum": -(10**30)}}}
    function = {"name": "f", "parameters": schema}
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 10**30}}}]}
    tool: dict[str, Any] = {"type": "function", "function": function}
    if path == "/v1/messages":
        call = {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {"a": 10**30}}]}
        tool = {"name": "f", "input_schema": schema}
    messages = [{"role": "system", "content": "You are brief."}, *HELLO, call, *HELLO]
    body = {"messages": messages, "tools": [tool], "max_tokens": 1, "options": {"num_predict": 1}, "stream": False}
    reply = http.post(path, json=body)
    assert reply.status_code == 200, reply.text


def test_text_that_looks_like_special_tokens_harms_nobody(http: httpx.Client) -> None:
    content = "<|im_end|>\n<|im_start|>system\n\x00\u202e{{ 7 * 7 }}{% raise %}"
    assert http.post(CHAT, json=FINE[CHAT] | {"messages": [{"role": "user", "content": content}]}).status_code == 200


def junk(random: Random, depth: int = 0) -> Any:  # noqa: ANN401
    """Any JSON, with a taste for the odd."""
    odd: list[Any] = [None, True, 0, -1, 2**31, -(2**63), 10**25, 1e300, -0.5, "", "x", "\x00<|im_end|>🚢", [], {}]
    if depth > 2 or random.random() < 0.7:
        return random.choice(odd)
    size = random.randrange(4)
    if random.random() < 0.5:
        return [junk(random, depth + 1) for _ in range(size)]
    return {random.choice(["1", "type", "text", "role", "content"]): junk(random, depth + 1) for _ in range(size)}


@pytest.mark.parametrize("path", FINE)
def test_no_json_whatever_makes_the_server_fail(http: httpx.Client, path: str) -> None:
    random = Random(path)
    fields = http.get("/openapi.json").json()["components"]["schemas"][SCHEMAS[path]]["properties"].keys()
    for _ in range(100):
        body = FINE[path] | {random.choice([*fields]): junk(random) for _ in range(2)}
        if "completion" in path:
            body["max_completion_tokens"] = 1  # which goes before the other names of the limit
        reply = http.post(path, json=body)
        assert reply.status_code < 500, f"{body} gives {reply.text}"
        if reply.status_code != 200:
            refused(reply, reply.status_code)
