"""Completions of plain text and token ids, as OpenAI's own client sees them."""

from typing import Any

import httpx
import openai
import pytest
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


def echoed(client: openai.OpenAI, **fields: Any) -> tuple[list[str], list[float | None], list[Any], list[int]]:  # noqa: ANN401
    """The four lists of an echo with log-probabilities: tokens, their own, the likeliest, offsets."""
    logprobs = complete(client, echo=True, **({"logprobs": 2} | fields)).choices[0].logprobs
    assert logprobs is not None
    top: list[Any] = logprobs.top_logprobs or []
    own: list[Any] = logprobs.token_logprobs or []
    return logprobs.tokens or [], own, top, logprobs.text_offset or []


def test_the_prompt_is_echoed_with_logprobs(client: openai.OpenAI, http: httpx.Client) -> None:
    num_tokens = len(tokens_of(http, PROMPT))
    text = complete(client, echo=True).choices[0].text
    tokens, own, top, offsets = echoed(client)
    assert "".join(tokens) == text
    assert len(tokens) == len(own) == len(top) == len(offsets) == num_tokens + 6
    assert all(text[at:].startswith(token) for token, at in zip(tokens, offsets, strict=True))
    assert (own[0], top[0]) == (None, None), "nothing comes before the first token"
    for token, chance, others in [*zip(tokens, own, top, strict=True)][1:]:
        assert others[token] == chance, "the token itself is always among them"
        assert 2 <= len(others) <= 3
    plain = complete(client, logprobs=2).choices[0].logprobs
    assert plain is not None
    assert own[num_tokens:] == pytest.approx(plain.token_logprobs, abs=0.05)


def test_an_echo_alone_generates_nothing(client: openai.OpenAI, http: httpx.Client) -> None:
    reply = complete(client, echo=True, logprobs=0, max_tokens=0)
    assert reply.choices[0].text == PROMPT
    assert reply.usage is not None
    assert (reply.usage.completion_tokens, len(tokens_of(http, PROMPT))) == (0, reply.usage.prompt_tokens)
    tokens, own, _, _ = echoed(client, max_tokens=0)
    assert len(tokens) == len(tokens_of(http, PROMPT))
    assert echoed(client, max_tokens=0, prompt=tokens_of(http, PROMPT))[1] == pytest.approx(own, abs=0.05)
    assert echoed(client, max_tokens=0, prompt=tokens_of(http, PROMPT)[:1])[1] == [None]


def test_the_end_counts_as_the_one_token_that_was_asked_for(client: openai.OpenAI, http: httpx.Client) -> None:
    """lm_eval takes all but the last log-probability for the prompt's."""
    (end,) = tokens_of(http, "<|im_end|>")
    tokens, _, _, _ = echoed(client, max_tokens=1, logit_bias={str(end): 100})
    assert len(tokens) == len(tokens_of(http, PROMPT)) + 1
    assert tokens[-1] == "<|im_end|>"


def test_several_prompts_are_echoed_whole_and_in_a_stream(client: openai.OpenAI) -> None:
    prompts = [PROMPT, "every morning", PROMPT]
    fields: dict[str, Any] = {"model": "tiny", "prompt": prompts, "temperature": 0, "max_tokens": 2}
    whole = client.completions.create(**fields, echo=True, logprobs=1)
    chunks = [*client.completions.create(**fields, echo=True, logprobs=1, stream=True)]
    for choice in whole.choices:
        parts = [part for chunk in chunks for part in chunk.choices if part.index == choice.index]
        assert "".join(part.text for part in parts) == choice.text
        assert choice.logprobs is not None
        told = [part.logprobs for part in parts if part.logprobs]
        assert [token for each in told for token in each.tokens or ()] == choice.logprobs.tokens
        assert [at for each in told for at in each.text_offset or ()] == choice.logprobs.text_offset
        chances = [chance for each in told for chance in each.token_logprobs or ()]
        assert chances == pytest.approx(choice.logprobs.token_logprobs, abs=0.05)


def test_too_many_logprobs_are_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="logprobs: there would be"):
        complete(client, prompt=[[1] * 2000] * 4, echo=True, logprobs=100)
