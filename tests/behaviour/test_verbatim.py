"""A tool loop whose client writes calls anew and keeps no thoughts: the model reads its own text all the same."""

import json
from typing import Any

import httpx
import openai
import pytest

from leftoff.chat.conversation import Conversation
from leftoff.host.host import ModelHost
from leftoff.server.server import serving
from tests.behaviour.test_reasoning import thinking

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: Any = [
    {
        "type": "function",
        "function": {"name": "get_weather", "description": "The weather in a city", "parameters": CITY},
    }
]
CHAT = "/v1/chat/completions"
RESULT = '{"temperature": 21, "sky": "sunny"}'


def loop(client: openai.OpenAI, *, thinks: bool) -> tuple[int, int]:
    """A call, and its result: how many tokens of the second prompt were reused, and how many the first turn had."""
    messages: list[Any] = [{"role": "user", "content": "What is the weather in Rome?"}]
    values: dict[str, Any] = {"model": "any", "tools": TOOLS, "temperature": 0, "max_tokens": 200}
    values["extra_body"] = {"enable_thinking": thinks}
    first = client.chat.completions.create(messages=messages, **values)
    assert first.choices[0].message.tool_calls, first
    (call,) = first.choices[0].message.tool_calls
    assert call.type == "function"
    written_anew = json.dumps(json.loads(call.function.arguments), indent=2)
    function = {"name": call.function.name, "arguments": written_anew}
    messages.append({"role": "assistant", "tool_calls": [{"id": call.id, "type": "function", "function": function}]})
    messages.append({"role": "tool", "tool_call_id": call.id, "content": RESULT})
    second = client.chat.completions.create(messages=messages, **values)
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    return second.usage.prompt_tokens_details.cached_tokens or 0, first.usage.total_tokens


def notes(host: ModelHost) -> str:
    return " ".join(host.log.records[0].notes)


@pytest.mark.parametrize("thinks", [False, True])
def test_the_models_own_text_is_resumed(thinks: bool) -> None:
    with thinking(read_ahead=False) as (host, client):
        reused, read = loop(client, thinks=thinks)
        assert reused >= read - 1  # the token that ended the reply was not read
        assert not notes(host)


def test_without_memory_the_thoughts_are_lost() -> None:
    with thinking(read_ahead=False, remember_replies=False) as (_, client):
        reused, read = loop(client, thinks=True)
        assert reused < read - 5


def test_a_reply_that_was_changed_is_taken_as_it_is() -> None:
    with thinking(read_ahead=False) as (host, client):
        messages: list[Any] = [{"role": "user", "content": "My name is Anna."}]
        values: dict[str, Any] = {"model": "any", "temperature": 0, "max_tokens": 60}
        first = client.chat.completions.create(messages=messages, **values)
        changed = (first.choices[0].message.content or "") + " And a word more."
        messages += [{"role": "assistant", "content": changed}, {"role": "user", "content": "What is my name?"}]
        client.chat.completions.create(messages=messages, **values)
        prompt = host.chats.prompt(Conversation(messages)).prompt
        assert b"And a word more." in host.model.vocabulary.detokenize(prompt.tokens)


def test_who_empties_the_cache_forgets_its_own_replies_only() -> None:
    mine, yours = {"Authorization": "Bearer mine"}, {"Authorization": "Bearer yours"}
    with (
        thinking(read_ahead=False, api_key=("mine", "yours")) as (host, _),
        serving(host) as url,
        httpx.Client(base_url=url, timeout=120) as http,
    ):
        body: dict[str, Any] = {"messages": [{"role": "user", "content": "What is the weather in Rome?"}]}
        body |= {"tools": TOOLS, "temperature": 0, "max_tokens": 200, "enable_thinking": True}
        message = http.post(CHAT, json=body, headers=mine).json()["choices"][0]["message"]
        assert message.pop("reasoning_content"), "a test of thoughts needs one"
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": RESULT}
        body |= {"messages": [*body["messages"], message, result], "max_tokens": 1}

        def prompt_tokens() -> int:
            """With the thoughts, if they are known."""
            number: int = http.post(CHAT, json=body, headers=mine).json()["usage"]["prompt_tokens"]
            return number

        remembered = prompt_tokens()
        assert http.delete("/cache", headers=yours).status_code == 200
        assert prompt_tokens() == remembered
        assert http.delete("/cache", headers=mine).status_code == 200
        assert prompt_tokens() < remembered


def test_a_reply_that_is_to_go_on_is_not_read_again() -> None:
    with thinking(read_ahead=False) as (_, client):
        asked: Any = [{"role": "user", "content": "Tell me of a harbour."}]
        wild: dict[str, Any] = {"model": "any", "temperature": 3.0, "seed": 1}  # in tokens that no tokenizer makes
        wild["extra_body"] = {"enable_thinking": False, "ignore_eos": True}
        first = client.chat.completions.create(messages=asked, max_tokens=60, **wild)
        begun: Any = {"role": "assistant", "content": first.choices[0].message.content}
        more = client.chat.completions.create(messages=[*asked, begun], max_tokens=4, **wild)
        assert first.usage is not None
        assert more.usage is not None
        assert more.usage.prompt_tokens_details is not None
        assert more.usage.prompt_tokens == first.usage.total_tokens
        assert more.usage.prompt_tokens_details.cached_tokens == more.usage.prompt_tokens - 1
