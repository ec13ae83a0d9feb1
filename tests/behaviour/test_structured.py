"""Structured outputs and forced calls, as OpenAI's own client asks for them, from the embedded model."""

import json
import threading
import time
from collections.abc import Iterator
from typing import Any, Literal

import httpx
import jsonschema
import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel, Field

from leftoff.host.host import ModelHost
from tests.patience import PATIENCE_S

MESSAGES: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"enum": [1, 2, 3]}},
    "required": ["city", "days"],
}
COUNT = {"type": "object", "properties": {"number": {"enum": [1, 2, 3]}}, "required": ["number"]}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "count", "parameters": COUNT}},
]


class Place(BaseModel):
    name: str = Field(max_length=20)
    kind: Literal["city", "river", "mountain"]
    visitors: int = Field(ge=0, le=10_000)


@pytest.fixture(scope="module")
def host(embedded_host: ModelHost) -> ModelHost:
    return embedded_host


@pytest.fixture(scope="module")
def url(embedded_url: str) -> str:
    return embedded_url


@pytest.fixture
def http(url: str) -> Iterator[httpx.Client]:
    """Unlike that of other files it leaves the cache as it is: this model reads a schema and its tools in a second."""
    with httpx.Client(base_url=url, timeout=PATIENCE_S) as http:
        yield http


def ask(client: openai.OpenAI, **fields: Any) -> ChatCompletion:  # noqa: ANN401
    values: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "temperature": 0, "max_tokens": 200} | fields
    reply: ChatCompletion = client.chat.completions.create(**values)
    return reply


def stream(client: openai.OpenAI, **fields: Any) -> list[ChatCompletionChunk]:  # noqa: ANN401
    values: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "temperature": 0, "max_tokens": 200} | fields
    return list(client.chat.completions.create(stream=True, **values))


def text_of(reply: ChatCompletion) -> str:
    assert reply.choices[0].finish_reason == "stop"
    return reply.choices[0].message.content or ""


def calls_of(reply: ChatCompletion) -> list[tuple[str, dict[str, Any]]]:
    calls = reply.choices[0].message.tool_calls or []
    return [(call.function.name, json.loads(call.function.arguments)) for call in calls if call.type == "function"]


def schema_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "place", "schema": schema, "strict": True}}


# --- what the reply says


def test_a_reply_is_parsed_into_a_pydantic_model(client: openai.OpenAI) -> None:
    reply = client.chat.completions.parse(
        model="tiny", messages=MESSAGES, response_format=Place, temperature=0, max_tokens=200
    )
    assert isinstance(reply.choices[0].message.parsed, Place)


@pytest.mark.parametrize(
    "response_format",
    [
        schema_format(WEATHER),
        {"type": "json_schema", "schema": WEATHER},
        {"type": "json_object", "schema": WEATHER},
    ],
)
def test_a_reply_follows_its_schema(client: openai.OpenAI, response_format: dict[str, Any]) -> None:
    reply = ask(client, response_format=response_format)
    jsonschema.validate(json.loads(text_of(reply)), WEATHER)


def test_a_reply_is_a_json_object(client: openai.OpenAI) -> None:
    """It may be of any length, and the model is fond of talking: a bias makes it come to an end."""
    bias = {"logit_bias": [['"}', 40.0]]}
    document = json.loads(text_of(ask(client, extra_body=bias, response_format={"type": "json_object"})))
    assert isinstance(document, dict)
    assert document


@pytest.mark.parametrize(
    "fields",
    [
        {"grammar": 'root ::= "yes" | "no"'},
        {"guided_choice": ["yes", "no"]},
        {"guided_regex": "yes|no"},
        {"guided_grammar": 'root ::= "yes" | "no"'},
        {"structured_outputs": {"regex": "yes|no"}},
        {"structured_outputs": {"choice": ["yes", "no"]}},
        {"structured_outputs": {"grammar": 'root ::= "yes" | "no"'}},
        {"response_format": {"type": "regex", "pattern": "yes|no"}},
    ],
)
def test_a_reply_is_one_of_two_words(client: openai.OpenAI, fields: dict[str, Any]) -> None:
    assert text_of(ask(client, extra_body=fields)) in ("yes", "no")


@pytest.mark.parametrize(
    "fields",
    [
        {"json_schema": COUNT},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "count", "schema": COUNT}}},
        {"response_format": {"type": "json_object", "schema": COUNT}},
        {"guided_json": COUNT},
        {"guided_json": json.dumps(COUNT)},
        {"structured_outputs": {"json": COUNT}},
    ],
)
def test_a_completion_follows_its_schema(http: httpx.Client, fields: dict[str, Any]) -> None:
    for path, limit in (("/completion", "n_predict"), ("/v1/completions", "max_tokens")):
        reply = http.post(path, json={"prompt": "The number: ", "temperature": 0, limit: 200, **fields}).json()
        text = reply["content"] if path == "/completion" else reply["choices"][0]["text"]
        jsonschema.validate(json.loads(text), COUNT)


def test_a_stream_says_the_same(client: openai.OpenAI) -> None:
    whole = text_of(ask(client, response_format=schema_format(WEATHER)))
    with client.chat.completions.stream(
        model="tiny", messages=MESSAGES, response_format=Place, temperature=0, max_tokens=200
    ) as parsed:
        assert isinstance(parsed.get_final_completion().choices[0].message.parsed, Place)
    chunks = stream(client, response_format=schema_format(WEATHER))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole


def test_warm_and_cold_say_the_same(client: openai.OpenAI, http: httpx.Client) -> None:
    for fields in ({"temperature": 0}, {"temperature": 1, "seed": 5}):
        assert http.delete("/cache").status_code == 200
        cold, warm = (ask(client, response_format=schema_format(WEATHER), **fields) for _ in range(2))
        assert text_of(cold) == text_of(warm)
        assert warm.usage is not None
        assert warm.usage.prompt_tokens_details is not None
        assert warm.usage.prompt_tokens_details.cached_tokens


def test_each_of_many_replies_follows_the_schema(client: openai.OpenAI, host: ModelHost) -> None:
    num_kept = host.grammars.num_kept
    fresh = {**WEATHER, "title": "asked for nowhere else"}
    reply = ask(client, response_format=schema_format(fresh), n=6, temperature=1.5, seed=1)
    texts = [choice.message.content or "" for choice in reply.choices]
    for text in texts:
        jsonschema.validate(json.loads(text), WEATHER)
    assert len({*texts}) > 1
    assert host.grammars.num_kept == num_kept + 1, "compiled once"


# --- calls


def test_a_call_is_required(client: openai.OpenAI) -> None:
    reply = ask(client, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    assert reply.choices[0].finish_reason == "tool_calls"
    ((name, arguments),) = calls_of(reply)
    jsonschema.validate(arguments, {"get_weather": WEATHER, "count": COUNT}[name])


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "function", "function": {"name": "count"}},
        {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "count"}}]},
        },
    ],
)
def test_the_call_of_one_function_is_required(client: openai.OpenAI, choice: dict[str, Any]) -> None:
    reply = ask(client, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False)
    ((name, arguments),) = calls_of(reply)
    assert name == "count"
    jsonschema.validate(arguments, COUNT)


def test_several_calls_follow_their_schemas(client: openai.OpenAI) -> None:
    for seed in range(4):
        reply = ask(client, tools=TOOLS, tool_choice="required", temperature=2, seed=seed, max_tokens=400)
        calls = calls_of(reply)
        assert calls
        for name, arguments in calls:
            jsonschema.validate(arguments, {"get_weather": WEATHER, "count": COUNT}[name])


def test_a_call_that_the_model_begins_by_itself_follows_its_schema(client: openai.OpenAI) -> None:
    """The model likes to call for the weather; left to itself, it does not know that there must be days."""
    reply = ask(client, tools=TOOLS, tool_choice="auto")
    ((name, arguments),) = calls_of(reply)
    assert name == "get_weather"
    jsonschema.validate(arguments, WEATHER)


def test_a_call_streams(client: openai.OpenAI) -> None:
    whole = ask(client, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    chunks = stream(client, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    deltas = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
    arguments = "".join(delta.function.arguments or "" for delta in deltas if delta.function)
    assert json.loads(arguments) == calls_of(whole)[0][1]


def test_no_call_where_none_is_wanted(client: openai.OpenAI) -> None:
    assert calls_of(ask(client, tools=TOOLS, tool_choice="none", max_tokens=30)) == []


def test_with_tools_and_a_schema_the_reply_is_either(client: openai.OpenAI) -> None:
    for seed in range(4):
        fields = {"response_format": schema_format(WEATHER), "tools": TOOLS, "parallel_tool_calls": False}
        reply = ask(client, temperature=2, seed=seed, **fields)
        calls = calls_of(reply)
        jsonschema.validate(calls[0][1] if calls else json.loads(text_of(reply)), {"anyOf": [WEATHER, COUNT]})


def test_a_model_thinks_before_it_must_speak(client: openai.OpenAI) -> None:
    """What it thinks is free; what it says is not."""
    question = "Tom has 3 apples and buys 4 more. How many apples does he have?"
    wanted = {"type": "json_schema", "json_schema": {"name": "count", "schema": COUNT}}
    messages = [{"role": "user", "content": question}]
    reply = ask(client, messages=messages, response_format=wanted, extra_body={"enable_thinking": True})
    assert (reply.choices[0].message.model_extra or {}).get("reasoning_content")
    jsonschema.validate(json.loads(reply.choices[0].message.content or ""), COUNT)


def test_a_tool_whose_schema_is_beyond_us_can_still_be_called(client: openai.OpenAI) -> None:
    schemas: list[dict[str, Any]] = [
        {"type": "object", "properties": {"a": {"not": {"const": 1}}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)"}}, "required": ["a"]},
    ]
    for schema in schemas:
        tools = [{"type": "function", "function": {"name": "odd", "parameters": schema}}]
        reply = ask(client, tools=tools, tool_choice="required", parallel_tool_calls=False, max_tokens=400)
        assert [name for name, _ in calls_of(reply)] == ["odd"] or reply.choices[0].finish_reason == "length"
        ask(client, tools=tools, max_tokens=5)


# --- what is refused

ODD_TOOL = {"name": "odd", "strict": True, "parameters": {"properties": {"a": {"not": {}}}}}


@pytest.mark.parametrize(
    ("fields", "param", "word"),
    [
        ({"response_format": schema_format({"not": {}})}, "response_format.json_schema.schema", "'not'"),
        ({"response_format": schema_format({"if": {}})}, "response_format.json_schema.schema", "'if'"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema", "required"),
        ({"response_format": {"type": "xml"}}, "response_format.type", "'xml'"),
        ({"response_format": {"type": "regex"}}, "response_format.pattern", "required"),
        ({"json_schema": {"contains": {}}}, "json_schema", "'contains'"),
        ({"guided_json": "{"}, "guided_json", "not JSON"),
        ({"guided_json": "[]"}, "guided_json", "object"),
        ({"guided_json": '{"a":' * 5000 + "1" + "}" * 5000}, "guided_json", "nested too deeply"),
        ({"guided_regex": "(a"}, "guided_regex", "unclosed group"),
        ({"guided_choice": []}, "guided_choice", "nothing to choose from"),
        ({"grammar": "root ::= lost"}, "grammar", "'lost'"),
        ({"grammar": "root ::= root"}, "grammar", "no text"),
        ({"grammar": 'root ::= "a"', "guided_regex": "a"}, "guided_regex", "give one"),
        ({"tool_choice": "any"}, "tool_choice", "'any'"),
        ({"tool_choice": "required"}, "tool_choice", "tools"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "lost"}}}, "tool_choice", "'lost'"),
        ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools"}}, "tool_choice.allowed_tools.tools", "list"),
        ({"tools": [{"type": "function", "function": ODD_TOOL}]}, "tools[0].function.parameters", "'not'"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_its_name(
    http: httpx.Client, fields: dict[str, Any], param: str, word: str
) -> None:
    reply = http.post("/v1/chat/completions", json={"messages": MESSAGES, "max_tokens": 5, **fields})
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["param"] == param
    assert word in error["message"]


@pytest.mark.parametrize(
    ("path", "fields", "field"),
    [
        (
            "/v1/messages",
            {"max_tokens": 5, "output_config": {"format": {"type": "json_schema", "schema": {"not": {}}}}},
            "output_config.format",
        ),
        ("/api/chat", {"format": {"not": {}}}, "format"),
        ("/v1/responses", {"text": {"format": {"type": "json_schema", "schema": {"not": {}}}}}, "text.format"),
    ],
)
def test_other_dialects_name_their_own_field(http: httpx.Client, path: str, fields: dict[str, Any], field: str) -> None:
    reply = http.post(path, json={"model": "tiny", "messages": MESSAGES, "input": MESSAGES, **fields})
    assert reply.status_code == 400
    assert f"{field}: " in reply.text
    assert "response_format" not in reply.text


SLOW = {"type": "object", "properties": {f"property {number}": {} for number in range(900)}}


def test_a_schema_that_takes_too_long_is_given_up(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leftoff.server.request.constraints._COMPILE_SECONDS", 0.001)
    body = {"messages": MESSAGES, "max_tokens": 5, "response_format": schema_format(SLOW)}
    reply = http.post("/v1/chat/completions", json=body)
    free = http.post("/v1/chat/completions", json={"messages": MESSAGES, "max_tokens": 5})
    assert reply.status_code == 400
    assert "to compile" in reply.json()["error"]["message"]
    assert reply.json()["error"]["param"] == "response_format.json_schema.schema"
    assert free.status_code == 200


def test_the_time_of_those_who_came_before_does_not_count(
    http: httpx.Client, host: ModelHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leftoff.server.request.constraints._COMPILE_SECONDS", 1.0)
    host.grammars.submit(lambda: time.sleep(1.2))
    body = {"messages": MESSAGES, "max_tokens": 5, "response_format": schema_format({"type": "boolean"})}
    assert http.post("/v1/chat/completions", json=body).status_code == 200


def test_a_short_request_does_not_wait_for_the_schemas_of_a_long_one(http: httpx.Client, host: ModelHost) -> None:
    released = threading.Event()
    host.grammars.submit(lambda: released.wait(60), is_long=True)
    body = {"messages": MESSAGES, "max_tokens": 5, "response_format": schema_format({"type": "null"})}
    reply = http.post("/v1/chat/completions", json=body)
    released.set()
    assert reply.status_code == 200


def test_who_waits_for_ever_is_told_to_come_back(
    http: httpx.Client, host: ModelHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leftoff.server.request.constraints._WAITING_SECONDS", 0.05)
    released = threading.Event()
    host.grammars.submit(lambda: released.wait(60))
    body = {"messages": MESSAGES, "max_tokens": 5, "response_format": schema_format({"type": "null"})}
    reply = http.post("/v1/chat/completions", json=body)
    released.set()
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "busy")


HUGE = "(a{1000}){1000}"
DEEP = {"$ref": "#/$defs/0", "$defs": {str(number): {"$ref": f"#/$defs/{number + 1}"} for number in range(5000)}}


@pytest.mark.parametrize(
    ("path", "fields", "field"),
    [
        ("/v1/chat/completions", {"guided_regex": HUGE}, "guided_regex"),
        ("/v1/chat/completions", {"structured_outputs": {"regex": HUGE}}, "structured_outputs.regex"),
        ("/v1/chat/completions", {"response_format": {"type": "regex", "pattern": HUGE}}, "response_format.pattern"),
        ("/v1/chat/completions", {"grammar": 'root ::= ("a"{1000}){1000}'}, "grammar"),
        ("/v1/chat/completions", {"guided_choice": ["a"] * 100_000}, "guided_choice"),
        ("/v1/chat/completions", {"guided_json": " " * 600_000 + "{}"}, "guided_json"),
        ("/v1/chat/completions", {"response_format": schema_format(DEEP)}, "response_format.json_schema.schema"),
        (
            "/v1/messages",
            {"output_config": {"format": {"type": "json_schema", "schema": DEEP}}},
            "output_config.format",
        ),
        ("/v1/responses", {"text": {"format": {"type": "json_schema", "schema": DEEP}}}, "text.format"),
        ("/api/chat", {"format": DEEP}, "format"),
        ("/completion", {"prompt": "x", "grammar": 'root ::= "a"{999999}'}, "grammar"),
        ("/completion", {"prompt": "x", "json_schema": DEEP}, "json_schema"),
    ],
)
def test_what_is_too_large_is_refused_before_it_is_compiled(
    http: httpx.Client, host: ModelHost, path: str, fields: dict[str, Any], field: str
) -> None:
    num_kept = host.grammars.num_kept
    reply = http.post(path, json={"model": "tiny", "messages": MESSAGES, "input": MESSAGES, "max_tokens": 5, **fields})
    assert reply.status_code == 400
    assert f"{field}: " in reply.text
    assert host.grammars.num_kept == num_kept
