"""Ten things that people do with a model, each cold and then warm: the answers are equal."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from leftoff.api.server import serving
from leftoff.api.service import Service
from leftoff.config import Settings
from leftoff.hub import default_model
from tests.patience import PATIENCE_S
from tests.real.test_remembered import RESULT, TOOLS

LONG_TOKENS = 12_000
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}

Said = Any
Probe = Callable[[openai.OpenAI], Said]


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """Longer than the model was trained for: what it says there is of no interest, only that it says it again."""
    settings = Settings(model=str(default_model()), ctx=16_384, threads=1, slots=4, ram=1024, disk=0)
    with Service(settings) as service:
        yield service


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[openai.OpenAI]:
    with (
        serving(service) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, timeout=PATIENCE_S) as client,
    ):
        yield client


def ask(client: openai.OpenAI, *contents: str, max_tokens: int = 40, **fields: Any) -> Any:  # noqa: ANN401
    """What comes back on messages of user and assistant in turn."""
    roles = ["user", "assistant"] * len(contents)
    messages: Any = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
    return send(client, messages, max_tokens=max_tokens, **fields)


def send(client: openai.OpenAI, messages: Any, **fields: Any) -> Any:  # noqa: ANN401
    values: dict[str, Any] = {"model": "any", "temperature": 0} | fields
    return client.chat.completions.create(messages=messages, **values).choices[0].message


def plain(client: openai.OpenAI) -> Said:
    return ask(client, "Hello! Who are you?").content


def recall(client: openai.OpenAI) -> Said:
    told = "My name is Anna and I live in Rome."
    first = ask(client, told).content
    second = ask(client, told, first, "I like tea.").content
    third = ask(client, told, first, "I like tea.", second, "What is my name?").content
    assert "Anna" in third
    return first, second, third


def schema(client: openai.OpenAI) -> Said:
    wanted = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}}
    said = ask(client, "Tell me of a person.", max_tokens=80, response_format=wanted).content
    assert set(json.loads(said)) == {"name", "age"}
    return said


def tools(client: openai.OpenAI) -> Said:
    messages: list[Any] = [{"role": "user", "content": "What is the weather in Rome?"}]
    first = send(client, messages, tools=TOOLS, max_tokens=80)
    (call,) = first.tool_calls
    assert json.loads(call.function.arguments) == {"city": "Rome"}
    # an id of its own: those of the server differ from reply to reply
    function = {"name": call.function.name, "arguments": call.function.arguments}
    messages.append(
        {"role": "assistant", "tool_calls": [{"id": "abcdefghi", "type": "function", "function": function}]}
    )
    messages.append({"role": "tool", "tool_call_id": "abcdefghi", "content": RESULT})
    return call.function.arguments, send(client, messages, tools=TOOLS, max_tokens=40).content


def thinking(client: openai.OpenAI) -> Said:
    question = "Tom has 3 apples and buys 4 more. How many apples does he have?"
    thought, direct = (
        ask(client, question, max_tokens=120, extra_body={"enable_thinking": thinks}) for thinks in (True, False)
    )
    assert thought.reasoning_content
    assert not getattr(direct, "reasoning_content", None)
    return thought.reasoning_content, thought.content, direct.content


def long_prompt(client: openai.OpenAI) -> Said:
    facts = " ".join(f"Number {index} is {index * 7 % 1000}." for index in range(LONG_TOKENS // 11))
    messages: Any = [{"role": "user", "content": facts + " What is number 3?"}]
    reply = client.chat.completions.create(model="any", messages=messages, temperature=0, max_tokens=8)
    assert reply.usage is not None
    assert reply.usage.prompt_tokens >= LONG_TOKENS
    return reply.choices[0].message.content


def stop(client: openai.OpenAI) -> Said:
    whole = ask(client, "My name is Anna.").content
    word = whole.split()[2]
    cut = ask(client, "My name is Anna.", stop=[word]).content
    assert whole.startswith(cut)
    assert word not in cut
    return cut


def cancel(client: openai.OpenAI) -> Said:
    """A client that leaves after three pieces, and another who asks the same right afterwards."""
    body: dict[str, Any] = {"model": "any", "temperature": 0, "max_tokens": 200}
    messages: Any = [{"role": "user", "content": "Tell me a long story of the sea."}]
    with client.chat.completions.create(messages=messages, stream=True, **body) as stream:
        for _ in range(3):
            next(stream)
    return ask(client, "Tell me a long story of the sea.").content


def parallel(client: openai.OpenAI) -> Said:
    names = ("Anna", "Carl", "Greta", "Hugo")  # with other names two answers may be equally likely
    barrier = threading.Barrier(len(names))

    def one(name: str) -> str:
        barrier.wait()
        return str(ask(client, f"My name is {name}.", "Nice to meet you!", "What is my name?").content)

    with ThreadPoolExecutor(len(names)) as pool:
        replies = list(pool.map(one, names))
    assert all(name in reply for name, reply in zip(names, replies, strict=True))
    return replies


def regenerate(client: openai.OpenAI) -> Said:
    greedy = ask(client, "I like tea. What do I like?").content
    drawn = [ask(client, "I like tea. What do I like?", temperature=1.0, seed=seed).content for seed in (1, 2)]
    return greedy, *drawn


PROBES: tuple[Probe, ...] = (
    *(plain, recall, schema, tools, thinking),
    *(long_prompt, stop, cancel, parallel, regenerate),
)


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.__name__)
def test_cold_and_warm_answer_alike(probe: Probe, client: openai.OpenAI) -> None:
    assert httpx.delete(str(client.base_url).replace("/v1/", "/cache")).status_code == 200
    cold = probe(client)
    assert probe(client) == cold
