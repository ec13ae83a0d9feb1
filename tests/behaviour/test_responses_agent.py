"""Agents in the dialect of responses, on a model that thinks and calls tools; Codex by the requests it sends."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from pydantic import BaseModel

from tests.patience import PATIENCE_S

WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}
QUESTION = "What is the weather in Paris?"
FOUND = '{"temperature": 9, "condition": "rainy"}'


@pytest.fixture(scope="module")
def url(embedded_url: str) -> str:
    return embedded_url


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, timeout=PATIENCE_S) as client:
        yield client


def test_a_tool_is_called_and_its_result_is_used(client: openai.OpenAI) -> None:
    called = client.responses.create(model="tiny", input=QUESTION, tools=[WEATHER], temperature=0)  # type: ignore[list-item]
    (call,) = called.output
    assert call.type == "function_call"
    assert (call.name, json.loads(call.arguments), call.status) == ("get_weather", {"city": "Paris"}, "completed")
    answered = client.responses.create(
        model="tiny",
        previous_response_id=called.id,
        input=[found_by(call.call_id)],  # type: ignore[list-item]
        tools=[WEATHER],  # type: ignore[list-item]
        temperature=0,
    )
    assert "rainy" in answered.output_text
    assert called.usage is not None
    assert answered.usage is not None
    assert answered.usage.input_tokens_details.cached_tokens >= called.usage.input_tokens


def test_a_streamed_call_is_the_same(client: openai.OpenAI) -> None:
    with client.responses.stream(model="tiny", input=QUESTION, tools=[WEATHER], temperature=0) as stream:  # type: ignore[list-item]
        events = [*stream]
        final = stream.get_final_response()
    # while the prompt is read, a slow server says again and again that it is in progress
    names = [event.type for event in events if event.type != "response.in_progress"]
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert names == [
        *("response.created", "response.output_item.added"),
        *["response.function_call_arguments.delta"] * len(deltas),
        *("response.function_call_arguments.done", "response.output_item.done", "response.completed"),
    ]
    assert len(deltas) > 1, "arguments stream as they are written"
    (call,) = final.output
    assert call.type == "function_call"
    assert call.arguments == "".join(deltas)
    assert json.loads(call.arguments) == {"city": "Paris"}


def test_reasoning_is_an_item_of_its_own(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "tiny", "input": "What is 2+3?", "temperature": 0}
    plain = client.responses.create(**asked, reasoning={"effort": "none"})
    thoughtful = client.responses.create(**asked, reasoning={"effort": "low"})
    assert [item.type for item in plain.output] == ["message"]
    assert [item.type for item in thoughtful.output] == ["reasoning", "message"]
    assert thoughtful.usage is not None
    assert 0 < thoughtful.usage.output_tokens_details.reasoning_tokens < thoughtful.usage.output_tokens
    with client.responses.stream(**asked, reasoning={"effort": "low"}) as stream:
        names = [event.type for event in stream]
        final = stream.get_final_response()
    assert names[2:5] == [
        "response.output_item.added",
        "response.content_part.added",
        "response.reasoning_text.delta",
    ]
    assert names.index("response.reasoning_text.done") < names.index("response.output_text.delta")
    reasoning = final.output[0]
    assert reasoning.type == "reasoning"
    assert reasoning.content is not None
    assert "2+3" in reasoning.content[0].text


def test_an_answer_may_have_to_follow_a_schema(client: openai.OpenAI) -> None:
    class Sum(BaseModel):
        total: int

    reply = client.responses.parse(model="tiny", input="What is 2+3?", text_format=Sum, temperature=0)
    assert isinstance(reply.output_parsed, Sum)


def test_a_call_may_be_demanded(client: openai.OpenAI) -> None:
    for choice in ("required", {"type": "function", "name": "get_weather"}):
        asked: dict[str, Any] = {"input": "Hello!", "tools": [WEATHER], "tool_choice": choice, "temperature": 0}
        reply = client.responses.create(model="tiny", **asked)
        assert [item.type for item in reply.output] == ["function_call"]


def test_a_function_of_a_namespace_is_called_and_answered(client: openai.OpenAI) -> None:
    tides: Any = {"type": "namespace", "name": "mcp__tides", "description": "Of the sea.", "tools": [WEATHER]}
    choice = {"type": "function", "name": "get_weather", "namespace": "mcp__tides"}
    asked: dict[str, Any] = {"model": "tiny", "input": QUESTION, "tools": [tides], "temperature": 0}
    for fields in ({}, {"tool_choice": choice}, {"tool_choice": {"type": "allowed_tools", "tools": [choice]}}):
        called = client.responses.create(**asked, **fields)
        (call,) = called.output
        assert call.type == "function_call"
        assert (call.name, call.namespace, json.loads(call.arguments)) == (
            "get_weather",
            "mcp__tides",
            {"city": "Paris"},
        )
    with client.responses.stream(**asked) as stream:
        named = {event.type: event for event in stream}
    assert named["response.function_call_arguments.done"].name == "get_weather"  # type: ignore[union-attr]
    for event in ("response.output_item.added", "response.output_item.done"):
        item = named[event].item  # type: ignore[union-attr]
        assert (item.name, item.namespace) == ("get_weather", "mcp__tides")  # type: ignore[union-attr]
    back = [{"role": "user", "content": QUESTION}, call.model_dump(), found_by(call.call_id)]
    answered = client.responses.create(**asked | {"input": back})
    assert "rainy" in answered.output_text
    assert answered.usage is not None
    assert called.usage is not None
    assert answered.usage.input_tokens_details.cached_tokens >= called.usage.input_tokens


def found_by(call_id: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": FOUND}


class Codex:
    """Sends what Codex sends: everything each time, nothing stored, tools of many kinds."""

    def __init__(self, url: str) -> None:
        self._url = url

    def send(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        """The response that its last event tells of."""
        body = {
            "model": "gpt-5-codex",
            "instructions": "You are a coding agent. " * 10,
            "input": [
                message("developer", "<permissions instructions>\nread only\n</permissions instructions>"),
                message("user", "<environment_context>\n  <cwd>/home</cwd>\n</environment_context>"),
                *items,
            ],
            "tools": [
                WEATHER,
                {"type": "local_shell"},
                {"type": "web_search", "external_web_access": False},
                {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark"}},
            ],
            "tool_choice": "auto",
            "parallel_tool_calls": False,
            "reasoning": {"effort": "medium", "summary": "auto"},
            "store": False,
            "stream": True,
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": "0198c3f0-0000-7000-8000-000000000000",
            "text": {"verbosity": "medium"},
            "client_metadata": {"x-codex-installation-id": "1"},
            "temperature": 0,
        }
        headers = {"accept": "text/event-stream", "originator": "codex_cli_rs", "session_id": "1"}
        reply = httpx.post(f"{self._url}/v1/responses", json=body, headers=headers, timeout=PATIENCE_S)
        assert reply.status_code == 200, reply.text
        last = json.loads(reply.text.strip().splitlines()[-1].removeprefix("data: "))
        assert last["type"] == "response.completed"
        response: dict[str, Any] = last["response"]
        return response


def message(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def handed_back(item: dict[str, Any]) -> dict[str, Any]:
    """As Codex does it: without ids, and thoughts only as what it takes for encrypted."""
    kept = {key: value for key, value in item.items() if key not in ("id", "status")}
    return kept | {"content": None} if item["type"] == "reasoning" else kept


def test_the_second_turn_of_codex_reads_only_what_is_new(url: str) -> None:
    assert httpx.delete(f"{url}/cache").status_code == 200
    codex, question = Codex(url), message("user", QUESTION)
    first = codex.send([question])
    assert [item["type"] for item in first["output"]][-1] == "function_call"
    call = first["output"][-1]
    second = codex.send([question, *map(handed_back, first["output"]), found_by(call["call_id"])])
    cached = second["usage"]["input_tokens_details"]["cached_tokens"]
    assert cached >= first["usage"]["total_tokens"] - 1
    assert second["usage"]["input_tokens"] - cached < 40
    assert "rainy" in second["output"][-1]["content"][0]["text"]
