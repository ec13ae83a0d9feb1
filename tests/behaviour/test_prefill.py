"""A reply that the client has begun is gone on with: what comes is the rest of what the model would have said."""

from typing import Any

import anthropic
import httpx
import openai
import pytest

from tests.server.alike import NUM_TOP, Said, difference

QUESTION: Any = {"role": "user", "content": "My name is Clara and I live in Oslo. What is my name?"}
LIKELIEST: Any = {"model": "any", "max_tokens": 40, "extra_body": {"temperature": 0, "enable_thinking": False}}
CHANCES: Any = {"logprobs": True, "top_logprobs": NUM_TOP}
ROUNDING = 0.5  # a token that is read in another batch moves this model by up to 0.2; another beginning by whole units


@pytest.fixture(scope="module")
def url(embedded_url: str) -> str:
    return embedded_url


def said(reply: Any) -> Said:  # noqa: ANN401
    """Token by token: a beginning is cut where one ends."""
    content = reply.choices[0].logprobs.content
    assert "".join(place.token for place in content).startswith(reply.choices[0].message.content or "-")
    top = [{rival.token: rival.logprob for rival in place.top_logprobs} for place in content]
    return Said([place.token for place in content], top)


@pytest.fixture(scope="module")
def whole(url: str) -> Said:
    """What the model says by itself."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any") as client:
        return said(client.chat.completions.create(messages=[QUESTION], **CHANCES, **LIKELIEST))


def test_openai(url: str, whole: Said) -> None:
    begun = "".join(whole.tokens[:3])
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any") as client:
        for content in (begun, [{"type": "text", "text": begun}]):
            messages: Any = [QUESTION, {"role": "assistant", "content": content}]
            rest = said(client.chat.completions.create(messages=messages, **CHANCES, **LIKELIEST))
            assert difference(rest, whole.after(3)) < ROUNDING
            assert difference(rest, whole.after(2)) > 2 * ROUNDING, "another place in the reply would show"


def test_anthropic(url: str, whole: Said) -> None:
    begun, next_word = "".join(whole.tokens[:3]), whole.tokens[3]
    first, second = sorted(whole.top[3].values(), reverse=True)[:2]
    assert first - second > 2 * ROUNDING, "rounding cannot tip it"
    with anthropic.Anthropic(base_url=url, api_key="any") as client:
        messages: Any = [QUESTION, {"role": "assistant", "content": begun}]
        reply = client.messages.create(messages=messages, **LIKELIEST)
    (block,) = reply.content
    assert block.type == "text"
    assert block.text.startswith(next_word)
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
