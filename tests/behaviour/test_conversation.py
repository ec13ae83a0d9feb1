"""A real conversation replayed over HTTP, turn by turn: each reads only what the last one had not shown."""

import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from leftoff.chat.conversation import Conversation
from leftoff.config import Settings
from leftoff.host.build import open_host
from leftoff.server.server import serving
from tests.factory import Scale, model_path
from tests.patience import PATIENCE_S

CONVERSATIONS = Path(__file__).parents[3] / "shared" / "data" / "conversations" / "tau-bench-airline-120.jsonl.xz"
NUM_TURNS = 10
KINDS = {"hybrid": "qwen35", "recurrent": "mamba2", "window": "gemma3", "attention": "llama"}

pytestmark = pytest.mark.skipif(not CONVERSATIONS.exists(), reason=f"the real conversations are not at {CONVERSATIONS}")


def conversation() -> list[dict[str, Any]]:
    """The shortest with as many turns: a long system prompt, questions, tool calls and what the tools said."""
    with lzma.open(CONVERSATIONS, "rt") as lines:
        found: list[list[dict[str, Any]]] = [json.loads(line)["messages"] for line in lines]
    return min((messages for messages in found if len(replies(messages)) > NUM_TURNS), key=lambda it: len(str(it)))


def replies(messages: list[dict[str, Any]]) -> list[int]:
    return [at for at, message in enumerate(messages) if message["role"] == "assistant"]


def prompts() -> Iterator[list[dict[str, Any]]]:
    """What a client sends before each reply of the conversation."""
    messages = conversation()
    for at in replies(messages)[:NUM_TURNS]:
        yield messages[:at]


@pytest.mark.parametrize("kind", KINDS)
def test_ten_turns(kind: str) -> None:
    model = model_path(KINDS[kind], Scale(context_length=1 << 16))
    settings = Settings(model=str(model), ctx=1 << 15, threads=1, slots=2, ram=256, disk=0, draft="off")
    with (
        open_host(settings) as host,
        serving(host) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, timeout=PATIENCE_S) as client,
    ):
        assert host.engine.memory.kind.value == kind
        known = 0
        for messages in prompts():
            values: dict[str, Any] = {"model": "any", "messages": messages, "max_tokens": 1, "temperature": 0}
            reply = client.chat.completions.create(**values)
            assert reply.usage is not None
            assert reply.usage.prompt_tokens_details is not None
            cached = reply.usage.prompt_tokens_details.cached_tokens or 0
            assert cached >= known, f"{cached} of {known} tokens that were read before, at message {len(messages)}"
            # all but the generation prompt comes again
            known = host.chats.prompt(Conversation(messages)).prompt.messages_end or 0
        assert known > 5000
