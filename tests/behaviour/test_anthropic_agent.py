"""Agents in Anthropic's dialect, on a model that thinks and calls tools; Claude Code by the requests it sends."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pytest
from anthropic.types import Message

from tests.patience import PATIENCE_S

WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "Get the current weather for a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
QUESTION = {"role": "user", "content": "What is the weather in Paris?"}
THINKING = {"type": "enabled", "budget_tokens": 1024}


@pytest.fixture(scope="module")
def url(embedded_url: str) -> str:
    return embedded_url


@pytest.fixture
def claude(url: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=url, api_key="any", max_retries=0, timeout=PATIENCE_S) as client:
        yield client


def ask(claude: anthropic.Anthropic, *messages: Any, **fields: Any) -> Message:  # noqa: ANN401
    values: dict[str, Any] = {"model": "tiny", "messages": [*messages], "max_tokens": 200} | fields
    reply: Message = claude.messages.create(extra_body={"temperature": 0}, **values)
    return reply


def kinds(message: Message) -> list[str]:
    return [block.type for block in message.content]


def replied(message: Message) -> dict[str, Any]:
    return {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in message.content]}


def result(message: Message, text: str) -> dict[str, Any]:
    (call,) = (block for block in message.content if block.type == "tool_use")
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": text}]}


def test_a_tool_is_called_and_its_result_is_used(claude: anthropic.Anthropic, url: str) -> None:
    assert httpx.delete(f"{url}/cache").status_code == 200
    called = ask(claude, QUESTION, tools=[WEATHER])
    assert called.stop_reason == "tool_use"
    (call,) = called.content
    assert call.type == "tool_use"
    assert (call.name, call.input) == ("get_weather", {"city": "Paris"})
    answered = ask(
        claude, QUESTION, replied(called), result(called, '{"temperature": 9, "condition": "rainy"}'), tools=[WEATHER]
    )
    assert answered.stop_reason == "end_turn"
    (text,) = answered.content
    assert text.type == "text"
    assert "rainy" in text.text
    first = called.usage.input_tokens
    assert (answered.usage.cache_read_input_tokens or 0) >= first, "the first turn is not read again"


def test_a_streamed_call_is_the_same(claude: anthropic.Anthropic) -> None:
    with claude.messages.stream(
        model="tiny",
        max_tokens=200,
        messages=[{"role": "user", "content": "What is the weather in Paris?"}],
        tools=[{"name": "get_weather", "description": WEATHER["description"], "input_schema": WEATHER["input_schema"]}],
        extra_body={"temperature": 0},
    ) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        final = stream.get_final_message()
    assert len(pieces) > 1, "arguments come in the pieces that they were written in"
    assert json.loads("".join(pieces)) == {"city": "Paris"}
    assert [block.input for block in final.content if block.type == "tool_use"] == [{"city": "Paris"}]
    assert final.stop_reason == "tool_use"


def test_thoughts_come_only_if_they_are_asked_for(claude: anthropic.Anthropic) -> None:
    sum_ = {"role": "user", "content": "What is 2+3?"}
    thoughtful, plain = ask(claude, sum_, thinking=THINKING), ask(claude, sum_)
    assert kinds(thoughtful) == ["thinking", "text"]
    assert kinds(plain) == kinds(ask(claude, sum_, thinking={"type": "disabled"})) == ["text"]
    thought = thoughtful.content[0]
    assert thought.type == "thinking"
    assert "2+3" in thought.thinking
    assert thought.signature, "clients drop thoughts that are not signed"


def test_streamed_thoughts_are_signed(claude: anthropic.Anthropic) -> None:
    with claude.messages.stream(
        model="tiny",
        max_tokens=200,
        messages=[{"role": "user", "content": "What is 2+3?"}],
        thinking={"type": "enabled", "budget_tokens": 1024},
        extra_body={"temperature": 0},
    ) as stream:
        events = [event.type for event in stream]
        final = stream.get_final_message()
    assert events.index("thinking") < events.index("signature") < events.index("text")
    assert kinds(final) == ["thinking", "text"]
    assert final.content[0].type == "thinking"
    assert final.content[0].signature


def test_a_reply_that_is_cut_off_within_a_call_says_so(claude: anthropic.Anthropic) -> None:
    reply = ask(claude, QUESTION, tools=[WEATHER], max_tokens=15)
    assert reply.stop_reason == "max_tokens"


@pytest.mark.parametrize("fields", [{"max_tokens": 15}, {"stop_sequences": ["Par"]}])
def test_a_call_that_is_cut_off_is_not_sent(claude: anthropic.Anthropic, fields: dict[str, Any]) -> None:
    whole = ask(claude, QUESTION, tools=[WEATHER], **fields)
    values: Any = {"model": "tiny", "messages": [QUESTION], "tools": [WEATHER], "max_tokens": 200} | fields
    with claude.messages.stream(extra_body={"temperature": 0}, **values) as stream:
        events = [event.type for event in stream]
        streamed = stream.get_final_message()
    assert whole.stop_reason == streamed.stop_reason == ("max_tokens" if "max_tokens" in fields else "stop_sequence")
    assert "tool_use" not in (*kinds(whole), *kinds(streamed))
    assert "input_json" not in events


def test_a_call_may_be_demanded(claude: anthropic.Anthropic) -> None:
    greeting = {"role": "user", "content": "Hello!"}
    assert kinds(ask(claude, greeting, tools=[WEATHER])) == ["text"]
    for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
        demanded = ask(claude, greeting, tools=[WEATHER], tool_choice=choice)
        assert (kinds(demanded), demanded.stop_reason) == (["tool_use"], "tool_use")
    assert kinds(ask(claude, QUESTION, tools=[WEATHER], tool_choice={"type": "none"})) == ["text"]


def test_an_answer_may_have_to_follow_a_schema(claude: anthropic.Anthropic) -> None:
    schema = {
        "type": "object",
        "properties": {"sum": {"type": "integer"}},
        "required": ["sum"],
        "additionalProperties": False,
    }
    reply = ask(
        claude,
        {"role": "user", "content": "What is 2+3?"},
        output_config={"format": {"type": "json_schema", "schema": schema}},
    )
    (text,) = reply.content
    assert text.type == "text"
    assert isinstance(json.loads(text.text)["sum"], int)


class ClaudeCode:
    """Sends what Claude Code sends: another billing line each time, marks, betas, a reminder that moves."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._num_sent = 0

    def send(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """The message that its events tell of."""
        self._num_sent += 1
        billing = f"x-anthropic-billing-header: cc_version=2.1.37; cc_entrypoint=cli; cch={self._num_sent:05x};"
        body = {
            "model": "claude-opus-4-8",
            "system": [
                {"type": "text", "text": billing},
                {"type": "text", "text": "You are a helpful agent.", "cache_control": {"type": "ephemeral"}},
                {"type": "text", "text": "Answer from tools. " * 10, "cache_control": {"type": "ephemeral"}},
            ],
            "messages": messages,
            "tools": [WEATHER, {"type": "web_search_20250305", "name": "web_search"}],
            "max_tokens": 400,
            "temperature": 0,
            "stream": True,
            "thinking": {"type": "adaptive"},
            "metadata": {"user_id": "user_0_account__session_1"},
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            "output_config": {"effort": "high"},
        }
        headers = {
            "anthropic-version": "2023-06-01",
            "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14",
            "x-api-key": "any",
        }
        reply = httpx.post(f"{self._url}/v1/messages?beta=true", json=body, headers=headers, timeout=PATIENCE_S)
        assert reply.status_code == 200, reply.text
        return told([json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: ")])


def told(events: list[dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {}
    written: dict[int, str] = {}
    for event in events:
        match event:
            case {"type": "message_start", "message": begun}:
                message = begun
            case {"type": "content_block_start", "index": index, "content_block": block}:
                message["content"].append(block)
                written[index] = ""
            case {"type": "content_block_delta", "index": index, "delta": {"type": kind, **delta}}:
                (text,) = delta.values()
                if kind == "signature_delta":
                    message["content"][index]["signature"] = text
                else:
                    written[index] += str(text)
            case {"type": "content_block_stop", "index": index}:
                block = message["content"][index]
                field = {"text": "text", "thinking": "thinking", "tool_use": "input"}[block["type"]]
                block[field] = json.loads(written[index]) if field == "input" else written[index]
            case {"type": "message_delta", "delta": delta, "usage": usage}:
                message |= {**delta, "usage": usage}
    return message


def test_the_second_turn_of_claude_code_reads_only_what_is_new(url: str) -> None:
    assert httpx.delete(f"{url}/cache").status_code == 200
    assert httpx.head(url).status_code == 200
    code = ClaudeCode(url)
    reminder = {"type": "text", "text": "<system-reminder>\nBe short.\n</system-reminder>"}
    question = {"type": "text", "text": "What is the weather in Paris?", "cache_control": {"type": "ephemeral"}}
    turns: list[dict[str, Any]] = [{"role": "user", "content": [reminder, question]}]
    first = code.send(turns)
    assert first["stop_reason"] == "tool_use"
    assert first["content"][-1]["input"] == {"city": "Paris"}
    usage = first["usage"]
    prompt_tokens = usage["input_tokens"] + usage["cache_creation_input_tokens"]
    assert usage["cache_read_input_tokens"] == 0
    found = {
        "type": "tool_result",
        "tool_use_id": first["content"][-1]["id"],
        "content": '{"temperature": 9, "condition": "rainy"}',
    }
    second = code.send(
        [
            *turns,
            {"role": "assistant", "content": first["content"]},
            {"role": "user", "content": [{**found, "cache_control": {"type": "ephemeral"}}]},
        ]
    )
    usage = second["usage"]
    assert usage["cache_read_input_tokens"] >= prompt_tokens + first["usage"]["output_tokens"] - 1
    assert usage["cache_creation_input_tokens"] + usage["input_tokens"] < 40
    assert "rainy" in second["content"][-1]["text"]
