"""Completions of plain text and token ids, as OpenAI's own client sees them."""

from typing import Any

import httpx
import openai
from openai.types import Completion

PROMPT = "the river runs down from the hill"


def complete(client: openai.OpenAI, **fields: Any) -> Completion:  # noqa: ANN401
    values: dict[str, Any] = {"model": "tiny", "prompt": PROMPT, "temperature": 0, "max_tokens": 6} | fields
    reply: Completion = client.completions.create(**values)
    return reply


def tokens_of(http: httpx.Client, text: str) -> list[int]:
    tokens: list[int] = http.post("/tokenize", json={"content": text}).json()["tokens"]
    return tokens


def test_a_text_goes_on(client: openai.OpenAI) -> None:
    reply = complete(client)
    assert reply.object == "text_completion"
    assert len(reply.choices[0].text.split()) == 6
    assert reply.choices[0].finish_reason == "length"


def test_token_ids_are_the_same_prompt(client: openai.OpenAI, http: httpx.Client) -> None:
    expected = complete(client)
    reply = complete(client, prompt=tokens_of(http, PROMPT))
    assert reply.choices[0].text == expected.choices[0].text
    assert reply.usage is not None
    assert reply.usage.prompt_tokens_details is not None
    assert reply.usage.prompt_tokens_details.cached_tokens == reply.usage.prompt_tokens == len(tokens_of(http, PROMPT))


def test_several_prompts(client: openai.OpenAI, http: httpx.Client) -> None:
    texts = [PROMPT, "a small boat waits", "every morning"]
    expected = [complete(client, prompt=text).choices[0].text for text in texts]
    for prompts in (texts, [tokens_of(http, text) for text in texts]):
        reply = complete(client, prompt=prompts)
        assert [choice.index for choice in reply.choices] == [0, 1, 2]
        assert [choice.text for choice in reply.choices] == expected
        assert reply.usage is not None
        assert reply.usage.prompt_tokens == sum(len(tokens_of(http, text)) for text in texts)
        assert reply.usage.completion_tokens == 18


def test_several_replies_to_several_prompts(client: openai.OpenAI) -> None:
    reply = complete(client, prompt=[PROMPT, "every morning"], n=2)
    first, second, third, fourth = (choice.text for choice in reply.choices)
    assert first == second != third == fourth


def test_a_stream_says_the_same(client: openai.OpenAI) -> None:
    prompts = [PROMPT, "every morning"]
    expected = complete(client, prompt=prompts)
    chunks = list(
        client.completions.create(
            model="tiny",
            prompt=prompts,
            temperature=0,
            max_tokens=6,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    for choice in expected.choices:
        parts = [part for chunk in chunks for part in chunk.choices if part.index == choice.index]
        assert "".join(part.text for part in parts) == choice.text
        assert parts[-1].finish_reason == "length"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 12


def test_logprobs_in_the_old_shape(client: openai.OpenAI) -> None:
    reply = complete(client, logprobs=2)
    logprobs = reply.choices[0].logprobs
    assert logprobs is not None
    tokens, offsets = logprobs.tokens or [], logprobs.text_offset or []
    assert "".join(tokens) == reply.choices[0].text
    assert all(reply.choices[0].text[at:].startswith(token) for token, at in zip(tokens, offsets, strict=True))
    for token, own, top in zip(tokens, logprobs.token_logprobs or [], logprobs.top_logprobs or [], strict=True):
        assert len(top) == 2
        assert max(top.values()) == top[token] == own


def test_the_prompt_is_echoed(client: openai.OpenAI) -> None:
    plain = complete(client)
    assert complete(client, echo=True).choices[0].text == PROMPT + plain.choices[0].text
    chunks = client.completions.create(model="tiny", prompt=PROMPT, temperature=0, max_tokens=6, echo=True, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == PROMPT + plain.choices[0].text


def test_letters_of_several_bytes_arrive_whole(client: openai.OpenAI, http: httpx.Client) -> None:
    """Each byte of the letter is a token of its own here."""
    first, second = tokens_of(http, "é")
    fields = {"prompt": "caf", "max_tokens": 4, "logit_bias": {str(first): 60, str(second): 60}}
    biased = complete(client, **fields)
    values: dict[str, Any] = {"model": "tiny", "temperature": 0, "stream": True, **fields}
    pieces = [chunk.choices[0].text for chunk in client.completions.create(**values)]
    assert "".join(pieces) == biased.choices[0].text
    letters = http.post("/detokenize", json={"tokens": [first, second]}).json()["content"]
    assert letters == "é"
