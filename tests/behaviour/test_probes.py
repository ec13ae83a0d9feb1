"""Ten things that people do with a model, each cold and then warm: the answers come from the same state."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx
import openai
import pytest

from leftoff.config import Settings
from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.hub.reference import default_model
from leftoff.server.server import serving
from tests.behaviour.test_verbatim import RESULT, TOOLS
from tests.patience import PATIENCE_S
from tests.server.alike import NUM_TOP, Said, difference

LONG_TOKENS = 150  # more than one batch
BATCH_TOKENS = 128
# How batches are made up moves the chances that this model gives by up to 0.2; another past moves them by whole units.
ROUNDING = 0.5
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


@dataclass
class Asker:
    """Asks for replies with their chances. What it asks a second time must be answered as it was the first time.

    The first reply is what is gone on from: where two words are as good, the second may be another.
    """

    client: openai.OpenAI
    first: dict[str, Any] = field(default_factory=dict)
    num_compared: int = 0

    def send(self, messages: Any, **fields: Any) -> Any:  # noqa: ANN401
        values: dict[str, Any] = {"model": "any", "temperature": 0, "logprobs": True, "top_logprobs": NUM_TOP} | fields
        reply = self.client.chat.completions.create(messages=messages, **values)
        before = self.first.setdefault(json.dumps([messages, fields], sort_keys=True), reply)
        if before is not reply:
            self._compare(before, reply)
        return before.choices[0].message

    def ask(self, *contents: str, max_tokens: int = 40, **fields: Any) -> Any:  # noqa: ANN401
        """What comes back on messages of user and assistant in turn."""
        roles = ["user", "assistant"] * len(contents)
        messages: Any = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
        return self.send(messages, max_tokens=max_tokens, **fields)

    def _compare(self, cold: Any, warm: Any) -> None:  # noqa: ANN401
        assert warm.usage.prompt_tokens_details.cached_tokens == warm.usage.prompt_tokens == cold.usage.prompt_tokens
        assert difference(said(cold), said(warm)) < ROUNDING
        self.num_compared += 1


Probe = Callable[[Asker], None]


def said(reply: Any) -> Said:  # noqa: ANN401
    places = reply.choices[0].logprobs.content
    top = [{rival.model_extra["id"]: rival.logprob for rival in place.top_logprobs} for place in places]
    return Said([place.model_extra["id"] for place in places], top)


@pytest.fixture(scope="module")
def host() -> Iterator[ModelHost]:
    """Room for a long prompt: what is said to that is of no interest, only that it is said again."""
    values: Any = {"ctx": 4_096, "batch": BATCH_TOKENS, "threads": 1, "slots": 4, "ram": 1024, "disk": 0}
    with open_host(Settings(model=str(default_model()), draft="off", **values)) as host:
        yield host


@pytest.fixture(scope="module")
def client(host: ModelHost) -> Iterator[openai.OpenAI]:
    with (
        serving(host) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, timeout=PATIENCE_S) as client,
    ):
        yield client


def plain(asker: Asker) -> None:
    asker.ask("Hello! Who are you?")


def recall(asker: Asker) -> None:
    told = "My name is Anna and I live in Rome."
    first = asker.ask(told).content
    second = asker.ask(told, first, "I like tea.").content
    third = asker.ask(told, first, "I like tea.", second, "What is my name?").content
    assert "Anna" in third


def schema(asker: Asker) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}}
    text = asker.ask("Tell me of a person.", max_tokens=80, response_format=wanted).content
    assert set(json.loads(text)) == {"name", "age"}


def tools(asker: Asker) -> None:
    messages: list[Any] = [{"role": "user", "content": "What is the weather in Rome?"}]
    first = asker.send(messages, tools=TOOLS, max_tokens=80)
    (call,) = first.tool_calls
    assert json.loads(call.function.arguments) == {"city": "Rome"}
    # an id of its own: those of the server differ from reply to reply
    function = {"name": call.function.name, "arguments": call.function.arguments}
    messages.append(
        {"role": "assistant", "tool_calls": [{"id": "abcdefghi", "type": "function", "function": function}]}
    )
    messages.append({"role": "tool", "tool_call_id": "abcdefghi", "content": RESULT})
    asker.send(messages, tools=TOOLS, max_tokens=40)


def thinking(asker: Asker) -> None:
    question = "Tom has 3 apples and buys 4 more. How many apples does he have?"
    thought, direct = (
        asker.ask(question, max_tokens=120, extra_body={"enable_thinking": thinks}) for thinks in (True, False)
    )
    assert thought.reasoning_content
    assert not getattr(direct, "reasoning_content", None)


def long_prompt(asker: Asker) -> None:
    facts = " ".join(f"Number {index} is {index * 7 % 1000}." for index in range(LONG_TOKENS // 10))
    messages: Any = [{"role": "user", "content": facts + " What is number 3?"}]
    asker.send(messages, max_tokens=8)
    (first,) = asker.first.values()
    assert first.usage.prompt_tokens >= LONG_TOKENS


def stop(asker: Asker) -> None:
    whole = asker.ask("My name is Anna.").content
    word = whole.split()[2]
    cut = asker.ask("My name is Anna.", stop=[word]).content
    assert whole.startswith(cut)
    assert word not in cut


def cancel(asker: Asker) -> None:
    """A client that leaves after three pieces, and another who asks the same right afterwards."""
    body: dict[str, Any] = {"model": "any", "temperature": 0, "max_tokens": 200}
    messages: Any = [{"role": "user", "content": "Tell me a long story of the sea."}]
    with asker.client.chat.completions.create(messages=messages, stream=True, **body) as stream:
        for _ in range(3):
            next(stream)
    asker.ask("Tell me a long story of the sea.")


def parallel(asker: Asker) -> None:
    names = ("Anna", "Carl", "Greta", "Hugo")
    barrier = threading.Barrier(len(names))

    def one(name: str) -> str:
        barrier.wait()
        return str(asker.ask(f"My name is {name}.", "Nice to meet you!", "What is my name?").content)

    with ThreadPoolExecutor(len(names)) as pool:
        replies = list(pool.map(one, names))
    assert all(name in reply for name, reply in zip(names, replies, strict=True))


def regenerate(asker: Asker) -> None:
    for fields in ({"temperature": 0}, {"temperature": 1.0, "seed": 1}, {"temperature": 1.0, "seed": 2}):
        asker.ask("I like tea. What do I like?", **fields)


PROBES: tuple[Probe, ...] = (
    *(plain, recall, schema, tools, thinking),
    *(long_prompt, stop, cancel, parallel, regenerate),
)


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.__name__)
def test_cold_and_warm_answer_alike(probe: Probe, client: openai.OpenAI) -> None:
    assert httpx.delete(str(client.base_url).replace("/v1/", "/cache")).status_code == 200
    asker = Asker(client)
    probe(asker)
    assert asker.num_compared == 0, "all of it is new"
    probe(asker)
    assert asker.num_compared == len(asker.first)


def test_the_state_of_another_conversation_would_show(client: openai.OpenAI) -> None:
    asker = Asker(client)
    for name in ("Anna", "Carl"):
        asker.ask(f"My name is {name}.", "Nice to meet you!", "What is my name?")
    one, other = map(said, asker.first.values())
    assert difference(one, other) > 10 * ROUNDING
