"""Tools, thoughts and schemas in Ollama's dialect, on a model that has them."""

import json
from collections.abc import Iterator
from typing import Any

import ollama
import pytest

QUESTION = {"role": "user", "content": "What is the weather in Paris?"}
SUM = {"role": "user", "content": "What is 2+3?"}
COLD = {"temperature": 0}


def get_weather(city: str) -> str:
    """Get the current weather for a city.

    Args:
        city: The name of the city.

    Returns:
        What it is like there.
    """
    return f'{{"temperature": 9, "condition": "rainy", "city": "{city}"}}'


@pytest.fixture(scope="module")
def url(embedded_url: str) -> str:
    return embedded_url


@pytest.fixture
def llama(url: str) -> Iterator[ollama.Client]:
    client = ollama.Client(host=url)
    yield client
    client.close()  # type: ignore[no-untyped-call]


def test_a_tool_is_called_and_its_result_is_used(llama: ollama.Client) -> None:
    called = llama.chat("tiny", [QUESTION], tools=[get_weather], options=COLD)
    (call,) = called.message.tool_calls or ()
    assert (call.function.name, call.function.arguments) == ("get_weather", {"city": "Paris"})
    result = {"role": "tool", "tool_name": "get_weather", "content": get_weather(**call.function.arguments)}
    answered = llama.chat("tiny", [QUESTION, called.message, result], tools=[get_weather], options=COLD)
    assert "rainy" in (answered.message.content or "")


def test_a_streamed_call_comes_whole(llama: ollama.Client) -> None:
    chunks = [*llama.chat("tiny", [QUESTION], tools=[get_weather], options=COLD, stream=True)]
    (call,) = (call for chunk in chunks for call in chunk.message.tool_calls or ())
    assert call.function.arguments == {"city": "Paris"}
    assert (chunks[-1].done, chunks[-1].done_reason) == (True, "stop")


@pytest.mark.parametrize("cut", [{"stop": ["Par"]}, {"num_predict": 16}], ids=["stop", "length"])
def test_a_call_that_is_cut_off_is_left_out(llama: ollama.Client, cut: dict[str, Any]) -> None:
    options: Any = {**COLD, **cut}
    cut_off = llama.chat("tiny", [QUESTION], tools=[get_weather], options=options)
    chunks = [*llama.chat("tiny", [QUESTION], tools=[get_weather], options=options, stream=True)]
    assert cut_off.eval_count is not None
    assert cut_off.eval_count >= 10, "it was within the call"
    assert cut_off.done_reason == chunks[-1].done_reason == ("stop" if "stop" in cut else "length")
    assert not any(chunk.message.tool_calls for chunk in (cut_off, *chunks))


def test_thoughts_come_apart(llama: ollama.Client) -> None:
    thoughtful = llama.chat("tiny", [SUM], think=True, options=COLD).message
    assert "2+3" in (thoughtful.thinking or "")
    assert "2+3" in (thoughtful.content or "")
    assert "<think>" not in (thoughtful.content or "")
    assert llama.chat("tiny", [SUM], think=False, options=COLD).message.thinking is None
    chunks = [*llama.chat("tiny", [SUM], think=True, options=COLD, stream=True)]
    assert "".join(chunk.message.thinking or "" for chunk in chunks) == thoughtful.thinking
    generated: Any = llama.generate("tiny", SUM["content"], think=True, options=COLD)
    assert (generated.thinking, generated.response) == (thoughtful.thinking, thoughtful.content)
    assert "thinking" in (llama.show("tiny").capabilities or ())


def test_an_answer_may_have_to_follow_a_schema(llama: ollama.Client) -> None:
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    reply = llama.chat("tiny", [SUM], format=schema, options=COLD)
    assert isinstance(json.loads(reply.message.content or "")["sum"], int)
    free = llama.chat("tiny", [SUM], format="json", options={**COLD, "num_predict": 20})
    assert (free.message.content or "").lstrip().startswith("{")
