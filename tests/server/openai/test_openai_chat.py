"""Chat completions, as OpenAI's own client sees them."""

import math
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessageParam

from leftoff.host.host import ModelHost

MESSAGES: list[ChatCompletionMessageParam] = [
    {"role": "system", "content": "you keep a lamp in the window"},
    {"role": "user", "content": "tell me the best story " * 20},
]


def ask(client: openai.OpenAI, **fields: Any) -> ChatCompletion:  # noqa: ANN401
    values: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "temperature": 0, "max_tokens": 12} | fields
    reply: ChatCompletion = client.chat.completions.create(**values)
    return reply


def stream(client: openai.OpenAI, **fields: Any) -> list[ChatCompletionChunk]:  # noqa: ANN401
    values: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "temperature": 0, "max_tokens": 12} | fields
    return list(client.chat.completions.create(stream=True, **values))


def text_of(reply: ChatCompletion, index: int = 0) -> str:
    return reply.choices[index].message.content or ""


def joined(chunks: list[ChatCompletionChunk], index: int = 0) -> str:
    choices = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
    return "".join(choice.delta.content or "" for choice in choices)


def timings(reply: ChatCompletion | ChatCompletionChunk) -> dict[str, float]:
    found: dict[str, float] = (reply.model_extra or {})["timings"]
    return found


def test_a_chat_is_answered(client: openai.OpenAI) -> None:
    reply = ask(client)
    assert len(text_of(reply).split()) == 12
    assert reply.object == "chat.completion"
    assert reply.id.startswith("chatcmpl-")
    assert reply.model == "tiny"
    assert reply.choices[0].message.role == "assistant"
    assert reply.choices[0].finish_reason == "length"
    assert reply.choices[0].logprobs is None


def test_a_stream_says_the_same(client: openai.OpenAI) -> None:
    reply, chunks = ask(client), stream(client)
    assert joined(chunks) == text_of(reply)
    assert len(chunks) > 12, "one chunk for each token"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]
    assert {chunk.id for chunk in chunks} == {chunks[0].id}


def test_what_was_read_once_is_not_read_again(client: openai.OpenAI) -> None:
    first, second = ask(client), ask(client)
    assert text_of(first) == text_of(second)
    assert first.usage is not None
    assert second.usage is not None
    assert first.usage.prompt_tokens_details is not None
    assert second.usage.prompt_tokens_details is not None
    prompt_tokens = first.usage.prompt_tokens
    assert first.usage.prompt_tokens_details.cached_tokens == timings(first)["cache_n"] == 0
    assert timings(first)["prompt_n"] == prompt_tokens
    cached = second.usage.prompt_tokens_details.cached_tokens
    assert cached == timings(second)["cache_n"] >= prompt_tokens - 1
    assert timings(second)["prompt_n"] == prompt_tokens - timings(second)["cache_n"] <= 1


def test_the_next_turn_reads_only_what_is_new(client: openai.OpenAI) -> None:
    first = ask(client)
    assert first.usage is not None
    turn: list[ChatCompletionMessageParam] = [
        *MESSAGES,
        {"role": "assistant", "content": text_of(first)},
        {"role": "user", "content": "and then"},
    ]
    second = ask(client, messages=turn)
    # all that was read and written, but for the last word: nobody has read that
    assert timings(second)["cache_n"] == first.usage.total_tokens - 1


def test_usage_and_timings_add_up(client: openai.OpenAI) -> None:
    reply = ask(client)
    assert reply.usage is not None
    assert reply.usage.completion_tokens == timings(reply)["predicted_n"] == 12
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + 12
    names = {"prompt_ms", "prompt_per_token_ms", "prompt_per_second", "predicted_ms", "predicted_per_second"}
    assert all(timings(reply)[name] > 0 for name in names)
    assert timings(reply)["predicted_per_token_ms"] == pytest.approx(timings(reply)["predicted_ms"] / 12)


def test_a_stream_ends_with_usage_if_asked(client: openai.OpenAI) -> None:
    chunks = stream(client, stream_options={"include_usage": True})
    assert [bool(chunk.usage) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == timings(chunks[-1])["predicted_n"] == 12
    assert not any(chunk.usage for chunk in stream(client))
    assert timings(stream(client)[-1])["predicted_n"] == 12


def test_usage_comes_with_every_token_if_asked(client: openai.OpenAI) -> None:
    """As guidellm asks for it, which counts the tokens of a reply that it has to cut off."""
    chunks = stream(client, stream_options={"include_usage": True, "continuous_usage_stats": True})
    counts = [chunk.usage.completion_tokens for chunk in chunks if chunk.usage]
    assert len(counts) == len([chunk for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]) + 1
    assert counts == sorted(counts)
    assert counts[-1] == 12
    assert len({chunk.usage.prompt_tokens for chunk in chunks if chunk.usage}) == 1


def test_progress_comes_while_the_prompt_is_read(client: openai.OpenAI) -> None:
    long: list[ChatCompletionMessageParam] = [{"role": "user", "content": "the river runs down " * 400}]
    chunks = stream(client, messages=long, max_tokens=1, extra_body={"return_progress": True})
    seen = [chunk.model_extra["prompt_progress"] for chunk in chunks if chunk.model_extra.get("prompt_progress")]  # type: ignore[union-attr,index]
    total = seen[0]["total"]
    assert [progress["processed"] for progress in seen] == sorted({progress["processed"] for progress in seen})
    assert (seen[0]["processed"], seen[-1]["processed"]) == (0, total)
    assert len(seen) >= 1 + total // 512
    assert {progress["cache"] for progress in seen} == {0}
    assert [*seen[0]] == ["total", "cache", "processed", "time_ms"]


def test_several_replies(client: openai.OpenAI) -> None:
    reply = ask(client, n=3, seed=7, temperature=1.5, extra_body={"top_k": 0, "min_p": 0})
    texts = [text_of(reply, index) for index in range(3)]
    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    assert len({*texts}) == 3
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 36
    assert texts[1] == text_of(ask(client, seed=8, temperature=1.5, extra_body={"top_k": 0, "min_p": 0}))
    chunks = stream(client, n=3, seed=7, temperature=1.5, extra_body={"top_k": 0, "min_p": 0})
    assert [joined(chunks, index) for index in range(3)] == texts


def test_a_seed_repeats_a_reply(client: openai.OpenAI) -> None:
    first, again, other = (text_of(ask(client, seed=seed, temperature=2)) for seed in (1, 1, 2))
    assert first == again != other


def test_a_stop_string_across_tokens_ends_the_reply(client: openai.OpenAI) -> None:
    text = text_of(ask(client))
    words = text.split()
    stop = f"{words[3][-2:]} {words[4][:2]}"  # the end of a word and the beginning of the next
    reply, chunks = ask(client, stop=stop), stream(client, stop=["never said", stop])
    assert text_of(reply) == joined(chunks) == text[: text.index(stop)]
    assert reply.choices[0].finish_reason == chunks[-1].choices[0].finish_reason == "stop"


def test_the_model_may_end_the_reply(client: openai.OpenAI, http: httpx.Client) -> None:
    (end,) = http.post("/tokenize", json={"content": "<|im_end|>"}).json()["tokens"]
    reply = ask(client, logit_bias={str(end): 100})
    assert text_of(reply) == ""
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 0
    endless = ask(client, logit_bias={str(end): 100}, extra_body={"ignore_eos": True})
    assert endless.choices[0].finish_reason == "length"


def test_a_bias_forces_and_forbids(client: openai.OpenAI, http: httpx.Client) -> None:
    (token,) = http.post("/tokenize", json={"content": " bread"}).json()["tokens"]
    assert text_of(ask(client, max_tokens=3, logit_bias={str(token): 100})) == " bread bread bread"
    first = text_of(ask(client, max_tokens=1))
    assert text_of(ask(client, max_tokens=1, extra_body={"logit_bias": [[first, False]]})) != first


@pytest.mark.parametrize("is_warm", [False, True])
def test_logprobs(client: openai.OpenAI, host: ModelHost, is_warm: bool) -> None:
    if is_warm:  # the logits of the first token then come from the cache
        ask(client)
    reply = ask(client, logprobs=True, top_logprobs=3)
    assert reply.choices[0].logprobs is not None
    content = reply.choices[0].logprobs.content or []
    assert "".join(token.token for token in content) == text_of(reply)
    for token in content:
        best = token.top_logprobs
        assert len(best) == 3
        assert (token.token, token.logprob) == (best[0].token, best[0].logprob), "greedy takes the likeliest"
        assert [other.logprob for other in best] == sorted((other.logprob for other in best), reverse=True)
        assert sum(math.exp(other.logprob) for other in best) <= 1
        assert bytes(token.bytes or []) == host.model.vocabulary.piece((token.model_extra or {})["id"])
    chunks = stream(client, logprobs=True, top_logprobs=3)
    streamed = [token for chunk in chunks for choice in chunk.choices for token in _logprobs_of(choice)]
    assert [token.token for token in streamed] == [token.token for token in content]
    assert [token.logprob for token in streamed] == pytest.approx([token.logprob for token in content], abs=1e-3)


def test_a_stop_string_has_no_logprobs(client: openai.OpenAI) -> None:
    whole = ask(client, logprobs=True)
    assert whole.choices[0].logprobs is not None
    tokens = [token.token for token in whole.choices[0].logprobs.content or []]
    stop = "".join(tokens[3:5])
    reply = ask(client, logprobs=True, stop=[stop])
    assert reply.choices[0].logprobs is not None
    said = "".join(token.token for token in reply.choices[0].logprobs.content or [])
    assert said == text_of(reply) == text_of(whole)[: text_of(whole).index(stop)]


def _logprobs_of(choice: Any) -> list[Any]:  # noqa: ANN401
    return (choice.logprobs.content or []) if choice.logprobs else []


def test_length_by_any_of_its_names(client: openai.OpenAI) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        reply = ask(client, **{"max_tokens": openai.omit, name: 5})
        assert len(text_of(reply).split()) == 5


def test_a_reply_without_a_limit_fills_the_context(client: openai.OpenAI, host: ModelHost) -> None:
    long = {"role": "user", "content": "the river runs" + " down" * (host.context_tokens - 100)}
    reply = ask(client, messages=[long], max_tokens=openai.omit)
    assert reply.usage is not None
    assert reply.usage.total_tokens == host.context_tokens
    assert reply.choices[0].finish_reason == "length"


def test_nothing_to_say_still_reads_the_prompt(client: openai.OpenAI) -> None:
    reply = ask(client, max_tokens=0)
    assert text_of(reply) == ""
    assert reply.usage is not None
    assert (reply.usage.completion_tokens, reply.choices[0].finish_reason) == (0, "length")
    assert timings(ask(client))["prompt_n"] <= 1


def test_content_in_parts_is_the_same_prompt(client: openai.OpenAI) -> None:
    ask(client)
    parts = [{"type": "text", "text": "tell me the best story "}] * 20
    reply = ask(client, messages=[MESSAGES[0], {"role": "user", "content": parts}])
    assert timings(reply)["prompt_n"] <= 1


def test_tools_reach_the_template(client: openai.OpenAI, http: httpx.Client) -> None:
    tool = {"type": "function", "function": {"name": "find_ship", "parameters": {"type": "object"}}}
    call = {"id": "1", "type": "function", "function": {"name": "find_ship", "arguments": '{"sea": 7}'}}
    messages = [*MESSAGES, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "found"}]
    prompt = http.post("/apply-template", json={"messages": messages, "tools": [tool]}).json()["prompt"]
    assert "find_ship" in prompt
    assert '{"name": "find_ship", "arguments": {"sea": 7}}' in prompt
    with_tools, without = ask(client, tools=[tool]), ask(client)
    assert with_tools.usage is not None
    assert without.usage is not None
    assert with_tools.usage.prompt_tokens > without.usage.prompt_tokens


def test_the_models_are_listed(client: openai.OpenAI) -> None:
    (model,) = client.models.list().data
    assert model.id == "tiny"
    assert client.models.retrieve("tiny") == model
    assert client.models.retrieve("org/other") == model.model_copy(update={"id": "org/other"}), "any name will do"


def test_an_image_becomes_a_note(client: openai.OpenAI) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    note = {"type": "text", "text": "[image left out: this model reads text only]"}
    texts = [{"type": "text", "text": "look"}, {"type": "text", "text": "what is it?"}]
    shown, noted = (
        ask(client, messages=[{"role": "user", "content": [texts[0], part, texts[1]]}]) for part in (image, note)
    )
    assert text_of(shown) == text_of(noted)
    assert shown.usage is not None
    assert noted.usage is not None
    assert shown.usage.prompt_tokens == noted.usage.prompt_tokens
