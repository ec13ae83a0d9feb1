"""Tools and reasoning, as OpenAI's own client sees them, with the model that comes with leftoff."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessageFunctionToolCall

from tests.patience import PATIENCE_S

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather for a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "The name of the city"}},
            "required": ["city"],
        },
    },
}
TIMER = {
    "type": "function",
    "function": {
        "name": "set_timer",
        "description": "Start a timer.",
        "parameters": {
            "type": "object",
            "properties": {"minutes": {"type": "integer", "description": "Number of minutes"}},
            "required": ["minutes"],
        },
    },
}
TOOLS: list[Any] = [WEATHER, TIMER]
WEATHER_NOW = {"city": "Paris", "temperature": 21, "condition": "sunny"}
QUESTION: Any = {"role": "user", "content": "What's the weather in Paris?"}

thinking = pytest.mark.parametrize("thinks", [False, True], ids=["plain", "thinking"])


@pytest.fixture(scope="module")
def url(embedded_url: str) -> str:
    return embedded_url


@pytest.fixture
def http(url: str) -> Iterator[httpx.Client]:
    """Unlike that of other files it leaves the cache as it is: this model reads the tools in a second."""
    with httpx.Client(base_url=url, timeout=PATIENCE_S) as http:
        yield http


def ask(client: openai.OpenAI, messages: list[Any], *, thinks: bool = False, **fields: Any) -> ChatCompletion:  # noqa: ANN401
    values: dict[str, Any] = {"tools": TOOLS, "temperature": 0, "max_tokens": 120} | fields
    values["extra_body"] = {"enable_thinking": thinks} | values.get("extra_body", {})
    reply: ChatCompletion = client.chat.completions.create(model="tiny", messages=messages, **values)
    return reply


def stream(client: openai.OpenAI, messages: list[Any], **fields: Any) -> list[ChatCompletionChunk]:  # noqa: ANN401
    chunks: Any = ask(client, messages, stream=True, **fields)
    return list(chunks)


def calls_of(reply: ChatCompletion) -> list[ChatCompletionMessageFunctionToolCall]:
    calls = reply.choices[0].message.tool_calls or []
    assert all(isinstance(call, ChatCompletionMessageFunctionToolCall) for call in calls)
    return calls  # type: ignore[return-value]


def reasoning_of(message: Any) -> str | None:  # noqa: ANN401
    text: str | None = (message.model_extra or {}).get("reasoning_content")
    return text


def deltas(chunks: list[ChatCompletionChunk]) -> list[dict[str, Any]]:
    return [chunk.choices[0].delta.model_dump(exclude_unset=True) for chunk in chunks]


@thinking
def test_a_tool_is_called_and_its_result_told(client: openai.OpenAI, thinks: bool) -> None:
    reply = ask(client, [QUESTION], thinks=thinks)
    choice = reply.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    assert bool(reasoning_of(choice.message)) == thinks
    (call,) = calls_of(reply)
    assert (call.type, call.function.name) == ("function", "get_weather")
    assert json.loads(call.function.arguments) == {"city": "Paris"}

    result = {"role": "tool", "tool_call_id": call.id, "content": json.dumps(WEATHER_NOW)}
    answer = ask(client, [QUESTION, choice.message.model_dump(exclude_none=True), result], thinks=thinks).choices[0]
    assert answer.finish_reason == "stop"
    assert answer.message.tool_calls is None
    assert answer.message.content
    assert "21" in answer.message.content
    assert "<" not in answer.message.content
    assert bool(reasoning_of(answer.message)) == thinks


@thinking
def test_a_stream_says_the_same_in_openais_shape(client: openai.OpenAI, thinks: bool) -> None:
    whole, chunks = ask(client, [QUESTION], thinks=thinks), stream(client, [QUESTION], thinks=thinks)
    (call,) = calls_of(whole)
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    said = deltas(chunks)
    assert said[0] == {"role": "assistant", "content": None}, "as in the whole reply"
    calls = [delta["tool_calls"][0] for delta in said if "tool_calls" in delta]
    head = calls[0]
    assert head == {
        "index": 0,
        "id": head["id"],
        "type": "function",
        "function": {"name": "get_weather", "arguments": ""},
    }
    assert all(set(one) == {"index", "function"} and set(one["function"]) == {"arguments"} for one in calls[1:])
    assert "".join(one["function"]["arguments"] for one in calls) == call.function.arguments
    assert len(calls) > 3, "arguments come piece by piece"
    assert "".join(delta.get("reasoning_content", "") for delta in said) == (
        reasoning_of(whole.choices[0].message) or ""
    )
    assert not any(delta.get("content") for delta in said)


def test_openais_own_helper_gathers_a_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="tiny",
        messages=[QUESTION],
        tools=TOOLS,
        temperature=0,
        extra_body={"enable_thinking": False},
    ) as events:
        (call,) = calls_of(events.get_final_completion())
    assert json.loads(call.function.arguments) == {"city": "Paris"}


def test_ids_of_calls_are_their_own(client: openai.OpenAI) -> None:
    ids = {call.id for _ in range(2) for call in calls_of(ask(client, [QUESTION]))}
    assert len(ids) == 2
    assert all(len(name) == 9 and name.isalnum() for name in ids), "some templates take no others"


def test_a_question_without_need_of_a_tool_is_answered(client: openai.OpenAI) -> None:
    choice = ask(client, [{"role": "user", "content": "Hello! My name is Ana."}]).choices[0]
    assert choice.finish_reason == "stop"
    assert choice.message.content
    assert choice.message.tool_calls is None


def test_a_call_that_is_cut_off_is_not_a_whole_one(client: openai.OpenAI) -> None:
    choice = ask(client, [QUESTION], max_tokens=16).choices[0]
    assert choice.finish_reason == "length"


@pytest.mark.parametrize("max_tokens", [0, 1, 2, 5, 8, 12, 16])
def test_a_stream_that_is_cut_off_says_what_the_whole_does(client: openai.OpenAI, max_tokens: int) -> None:
    """Half a call is no content, and before its arguments it is nothing."""
    whole = ask(client, [QUESTION], max_tokens=max_tokens).choices[0].message
    assert not whole.content
    assert (whole.content is None) == bool(whole.tool_calls)
    content: str | None = None
    for delta in deltas(stream(client, [QUESTION], max_tokens=max_tokens)):
        content = content if delta.get("content") is None else (content or "") + delta["content"]
    assert content == whole.content


def test_a_call_that_a_stop_cuts_off_is_not_a_whole_one(client: openai.OpenAI) -> None:
    choice = ask(client, [QUESTION], stop=["Par"]).choices[0]
    assert choice.finish_reason == "stop"
    assert "Par" not in str(choice.message.tool_calls)
    assert stream(client, [QUESTION], stop=["Par"])[-1].choices[0].finish_reason == "stop"
    behind = ask(client, [QUESTION], stop=["</tool_call>"])
    assert behind.choices[0].finish_reason == "tool_calls", "it is whole"
    (call,) = calls_of(behind)
    assert json.loads(call.function.arguments) == {"city": "Paris"}


def test_one_call_is_enough_without_parallel_calls(client: openai.OpenAI) -> None:
    """Though the model may not end the reply itself."""
    one = ask(client, [QUESTION], parallel_tool_calls=False, extra_body={"ignore_eos": True})
    assert one.choices[0].finish_reason == "tool_calls"
    assert len(calls_of(one)) == 1


def test_without_tools_reasoning_is_told_apart(client: openai.OpenAI) -> None:
    message = {"role": "user", "content": "My name is Ana. What is my name?"}
    reply = ask(client, [message], tools=openai.NOT_GIVEN, thinks=True).choices[0].message
    assert reasoning_of(reply)
    assert reply.content
    assert "think>" not in reply.content


def test_reasoning_stays_in_the_content_if_asked_for(client: openai.OpenAI) -> None:
    reply = ask(client, [QUESTION], thinks=True, extra_body={"reasoning_format": "none"}).choices[0].message
    assert reasoning_of(reply) is None
    assert reply.content
    assert reply.content.startswith("<think>")
    assert "</think>" in reply.content
    assert reply.tool_calls


def test_tool_choice_none_keeps_the_prompt_and_calls_nothing(client: openai.OpenAI) -> None:
    with_tools = ask(client, [QUESTION])
    assert calls_of(with_tools), "else it proves nothing"
    for seed in range(4):
        reply = ask(client, [QUESTION], tool_choice="none", temperature=seed / 2, seed=seed)
        assert calls_of(reply) == []
        assert reply.choices[0].message.content
        assert "<tool_call>" not in reply.choices[0].message.content
        assert reply.usage is not None
        assert with_tools.usage is not None
        assert reply.usage.prompt_tokens == with_tools.usage.prompt_tokens
        assert reply.usage.prompt_tokens_details is not None
        assert reply.usage.prompt_tokens_details.cached_tokens == reply.usage.prompt_tokens


def test_logprobs_are_told_for_every_token_of_a_call(client: openai.OpenAI) -> None:
    whole = ask(client, [QUESTION], logprobs=True)
    chunks = stream(client, [QUESTION], logprobs=True)
    told = [chunk.choices[0].logprobs for chunk in chunks if chunk.choices[0].logprobs]
    assert whole.usage
    assert sum(len(one.content or ()) for one in told) == whole.usage.completion_tokens


def test_a_wrong_reasoning_format_is_refused(http: httpx.Client) -> None:
    body = {"messages": [QUESTION], "reasoning_format": "loud"}
    answer = http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "reasoning_format"
