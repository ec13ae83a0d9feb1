"""A tool loop whose client writes calls anew and keeps no thoughts: the model reads its own text all the same."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from leftoff.chat.conversation import Conversation
from leftoff.host.host import ModelHost
from leftoff.server.tenant import Tenant
from tests.behaviour.test_reasoning import thinking
from tests.patience import PATIENCE_S

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: Any = [
    {
        "type": "function",
        "function": {"name": "get_weather", "description": "The weather in a city", "parameters": CITY},
    }
]
RESULT = '{"temperature": 21, "sky": "sunny"}'
KEYS = ("mine", "yours")

Running = tuple[ModelHost, openai.OpenAI]


@pytest.fixture(scope="module")
def opened() -> Iterator[Running]:
    with thinking(read_ahead=False, api_key=KEYS) as (host, client):
        yield host, client.with_options(api_key=KEYS[0])


@pytest.fixture
def running(opened: Running) -> Running:
    """A server that remembers nothing yet."""
    for key in KEYS:
        delete(opened[1], key)
    return opened


def delete(client: openai.OpenAI, key: str) -> None:
    url, headers = str(client.base_url.join("/cache")), {"Authorization": f"Bearer {key}"}
    assert httpx.delete(url, headers=headers, timeout=PATIENCE_S).status_code == 200


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
def test_the_models_own_text_is_resumed(running: Running, thinks: bool) -> None:
    host, client = running
    reused, read = loop(client, thinks=thinks)
    assert reused >= read - 1  # the token that ended the reply was not read
    assert not notes(host)


def test_without_memory_the_thoughts_are_lost() -> None:
    with thinking(read_ahead=False, remember_replies=False) as (_, client):
        reused, read = loop(client, thinks=True)
        assert reused < read - 5


def test_a_reply_that_was_changed_is_taken_as_it_is(running: Running) -> None:
    host, client = running
    messages: list[Any] = [{"role": "user", "content": "My name is Anna."}]
    values: dict[str, Any] = {"model": "any", "temperature": 0, "max_tokens": 60}
    first = client.chat.completions.create(messages=messages, **values)
    changed = (first.choices[0].message.content or "") + " And a word more."
    messages += [{"role": "assistant", "content": changed}, {"role": "user", "content": "What is my name?"}]
    client.chat.completions.create(messages=messages, **values)
    namespace = Tenant.of(KEYS[0], host.secret).namespace(None)
    prompt = host.chats.prompt(Conversation(messages, namespace=namespace)).prompt
    assert b"And a word more." in host.model.vocabulary.detokenize(prompt.tokens)


def test_who_empties_the_cache_forgets_its_own_replies_only(running: Running) -> None:
    _, client = running
    messages: list[Any] = [{"role": "user", "content": "What is the weather in Rome?"}]
    values: dict[str, Any] = {"model": "any", "tools": TOOLS, "temperature": 0, "extra_body": {"enable_thinking": True}}
    reply = client.chat.completions.create(messages=messages, max_tokens=200, **values).choices[0].message
    message = reply.model_dump(exclude_none=True)
    assert message.pop("reasoning_content"), "a test of thoughts needs one"
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": RESULT}
    messages += [message, result]

    def prompt_tokens() -> int:
        """With the thoughts, if they are known."""
        number: int = client.chat.completions.create(messages=messages, max_tokens=1, **values).usage.prompt_tokens
        return number

    remembered = prompt_tokens()
    delete(client, "yours")
    assert prompt_tokens() == remembered
    delete(client, "mine")
    assert prompt_tokens() < remembered


def test_a_reply_that_is_to_go_on_is_not_read_again(running: Running) -> None:
    _, client = running
    asked: Any = [{"role": "user", "content": "Tell me of a harbour."}]
    wild: dict[str, Any] = {"model": "any", "temperature": 3.0, "seed": 1}  # in tokens that no tokenizer makes
    wild["extra_body"] = {"enable_thinking": False, "ignore_eos": True}
    first = client.chat.completions.create(messages=asked, max_tokens=24, **wild)
    begun: Any = {"role": "assistant", "content": first.choices[0].message.content}
    more = client.chat.completions.create(messages=[*asked, begun], max_tokens=4, **wild)
    assert first.usage is not None
    assert more.usage is not None
    assert more.usage.prompt_tokens_details is not None
    assert more.usage.prompt_tokens == first.usage.total_tokens
    assert more.usage.prompt_tokens_details.cached_tokens == more.usage.prompt_tokens - 1
