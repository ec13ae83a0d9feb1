"""A model that thinks, and a client that does not send its thoughts back."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest

from leftoff.cache.tree import common_prefix
from leftoff.chat.conversation import Conversation
from leftoff.config import Settings
from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.hub.reference import default_model
from leftoff.server.server import serving
from leftoff.types import Prompt
from tests.patience import PATIENCE_S, until

QUESTIONS = (
    "Tom has 3 apples and buys 4 more. How many apples does he have?",
    "My name is Anna. What is 5 plus 2?",
    "What is 8 plus 1?",
    "What is my name?",
)


@contextmanager
def thinking(**changes: object) -> Iterator[tuple[ModelHost, openai.OpenAI]]:
    values: dict[str, Any] = {"model": str(default_model()), "threads": 1, "slots": 2, "ram": 512, "disk": 0}
    values |= {"draft": "off"} | changes
    with (
        open_host(Settings(**values)) as host,
        serving(host) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, timeout=PATIENCE_S) as client,
    ):
        yield host, client


def wait_until_idle(host: ModelHost) -> None:
    """Nothing runs, and what was to be read ahead has been read."""

    def is_idle() -> bool:
        if host.lanes.num_running:
            return False
        return not host.call(lambda: host.scheduler.runs or host.scheduler._ahead).result()

    for _ in range(2):
        assert until(is_idle)


def read_as(host: ModelHost, messages: list[dict[str, Any]]) -> Prompt:
    return host.chats.prompt(Conversation(messages, options={"enable_thinking": True})).prompt


@pytest.mark.parametrize("is_idle", [True, False])
def test_four_turns_without_their_thoughts(is_idle: bool) -> None:
    with thinking(read_ahead=is_idle) as (host, client):
        messages: list[dict[str, Any]] = []
        computed = own = unavoidable = thoughts = 0
        before: Prompt | None = None
        for question in QUESTIONS:
            messages.append({"role": "user", "content": question})
            prompt = read_as(host, messages)
            values: dict[str, Any] = {"model": "any", "messages": messages, "temperature": 0, "max_tokens": 200}
            reply = client.chat.completions.create(**values, extra_body={"enable_thinking": True})
            message, usage = reply.choices[0].message, reply.usage
            assert usage is not None
            assert usage.prompt_tokens_details is not None
            assert usage.prompt_tokens == prompt.length
            if before is not None:
                computed += usage.prompt_tokens - (usage.prompt_tokens_details.cached_tokens or 0)
                own += prompt.length - prompt.messages[-1].start
                unavoidable += prompt.length - common_prefix(before.tokens, prompt.tokens)
            before = prompt
            thoughts += bool(getattr(message, "reasoning_content", ""))
            messages.append({"role": "assistant", "content": message.content})
            wait_until_idle(host)
        assert thoughts >= 3, "a test of thinking needs thoughts"
        assert computed <= 1.05 * (own if is_idle else unavoidable)
        assert (host.log.counts["", host.name].read_ahead_tokens > 0) is is_idle
        assert any("read ahead" in record.origins for record in host.log.records) is is_idle
        notes = [note for record in host.log.records for note in record.notes]
        assert any(note.startswith("reasoning dropped") for note in notes)
