"""A reply that the client has begun is gone on with: what comes is the rest of what the model would have said."""

from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import openai
import pytest

from tests.api.embedded import embedded_server

QUESTION: Any = {"role": "user", "content": "My name is Clara and I live in Oslo. What is my name?"}
LIKELIEST: Any = {"model": "any", "max_tokens": 40, "extra_body": {"temperature": 0, "enable_thinking": False}}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with embedded_server() as url:
        yield url


@pytest.fixture(scope="module")
def words(url: str) -> list[str]:
    """What the model says by itself, token by token: a beginning is cut where a token ends."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any") as client:
        reply = client.chat.completions.create(messages=[QUESTION], logprobs=True, **LIKELIEST)
    assert reply.choices[0].logprobs is not None
    words = [token.token for token in reply.choices[0].logprobs.content or ()]
    assert "".join(words).startswith(reply.choices[0].message.content or "-")
    return words


def test_openai(url: str, words: list[str]) -> None:
    begun, rest = "".join(words[:3]), "".join(words[3:])
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any") as client:
        for content in (begun, [{"type": "text", "text": begun}]):
            messages: Any = [QUESTION, {"role": "assistant", "content": content}]
            reply = client.chat.completions.create(messages=messages, **LIKELIEST)
            assert rest.startswith(reply.choices[0].message.content or "-")


def test_anthropic(url: str, words: list[str]) -> None:
    begun, rest = "".join(words[:4]), "".join(words[4:])
    with anthropic.Anthropic(base_url=url, api_key="any") as client:
        messages: Any = [QUESTION, {"role": "assistant", "content": begun}]
        reply = client.messages.create(messages=messages, **LIKELIEST)
    (block,) = reply.content
    assert block.type == "text"
    assert rest.startswith(block.text)
    assert reply.usage.cache_read_input_tokens


def test_the_template_is_applied_alike(url: str) -> None:
    messages: Any = [QUESTION, {"role": "assistant", "content": "Your na"}]
    with httpx.Client(base_url=url) as http:
        whole, plain, closed = (
            http.post("/apply-template", json={"messages": told, "enable_thinking": False} | options).json()["prompt"]
            for told, options in (
                (messages, {}),
                (messages[:1], {}),
                (messages, {"add_generation_prompt": False}),
            )
        )
    assert whole == plain + "Your na"
    assert not closed.endswith("Your na"), "without a generation prompt it is a message like any other"


def test_after_calls_of_tools_another_reply_begins(url: str) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages: Any = [QUESTION, {"role": "assistant", "content": "Let me see.", "tool_calls": [call]}]
    with httpx.Client(base_url=url) as http:
        prompt = http.post("/apply-template", json={"messages": messages}).json()["prompt"]
    assert not prompt.endswith("Let me see.")
