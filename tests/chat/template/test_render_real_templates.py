"""Real templates render real conversations, and the messages are found where they stand."""

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from leftoff.chat.conversation import Conversation
from leftoff.chat.prompts import NOT_MADE, PromptMaker
from leftoff.chat.template.render import MessageDict, TemplateError
from leftoff.chat.template.spans import MARK, Rendered
from leftoff.engine.model import Model
from tests.chat.conversations import CONVERSATIONS, OPTIONS, TOOLS, assistant, call, result, user
from tests.chat.shared import shared_files
from tests.factory import model_path
from tests.factory.template import CHAT_TEMPLATE

TEMPLATES = shared_files("templates/*.jinja")
real = pytest.mark.skipif(not TEMPLATES, reason="needs the templates of real models, which are not in the repository")
every_conversation = pytest.mark.parametrize("conversation", CONVERSATIONS)


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    model = Model(model_path("llama"))
    yield model
    model.close()


@cache
def source(path: Path | None) -> str:
    return path.read_text() if path else CHAT_TEMPLATE


@pytest.fixture(scope="module", params=[None, *TEMPLATES], ids=lambda path: path.stem if path else "factory")
def maker(request: pytest.FixtureRequest, model: Model) -> PromptMaker:
    return PromptMaker(model, source(request.param))


@cache
def render(maker: PromptMaker, conversation: str, option: str, *, prompt: bool = True) -> Rendered:
    return maker.render(asked(conversation, option, prompt=prompt))


def asked(conversation: str, option: str, *, prompt: bool = True) -> Conversation:
    return Conversation(CONVERSATIONS[conversation], tools(conversation), OPTIONS[option], add_generation_prompt=prompt)


def tools(conversation: str) -> list[dict[str, Any]] | None:
    return TOOLS if "tools" in conversation else None


def own_words(message: MessageDict) -> list[str]:
    """What a message may begin with in the text: as it is, or inside of JSON."""
    content = message.get("content") or ""
    texts = [content] if isinstance(content, str) else [part["text"] for part in content]
    texts += [message.get(key, "") for key in ("reasoning_content", "thinking")]
    texts += [text.partition("</think>")[2] for text in texts]
    texts += [text.replace("<think>", "").partition("</think>")[0] for text in texts]
    texts += [one["function"]["name"] for one in message.get("tool_calls", ())]
    stripped = [text.strip() for text in texts if text.strip()]
    return stripped + [json.dumps(text, ensure_ascii=False)[1:-1] for text in stripped]


def test_the_templates_are_there_or_the_reason_is_said() -> None:
    if not TEMPLATES:
        pytest.skip("needs the templates of real models, which are not in the repository")
    assert len(TEMPLATES) >= 15


@every_conversation
def test_a_message_begins_where_its_own_words_do(maker: PromptMaker, conversation: str) -> None:
    shaped = maker.quirks.messages(CONVERSATIONS[conversation])
    for option in OPTIONS:
        rendered = render(maker, conversation, option)
        for span in rendered.spans:
            words = own_words(shaped[span.index])
            assert any(rendered.text.startswith(word, span.start) for word in words), (option, span, words)
            assert span.role == shaped[span.index]["role"]
        hidden = {*range(len(shaped))} - {span.index for span in rendered.spans}
        for index in hidden:  # what has no span has no words in the text
            assert not any(word in rendered.text for word in own_words(shaped[index]))


@every_conversation
def test_spans_rise_and_meet(maker: PromptMaker, conversation: str) -> None:
    for option in OPTIONS:
        rendered = render(maker, conversation, option)
        assert rendered.spans
        for left, right in pairwise(rendered.spans):
            assert left.start < left.end == right.start
        assert rendered.spans[-1].start < rendered.spans[-1].end <= len(rendered.text)
        assert MARK not in rendered.text


@every_conversation
def test_the_messages_end_where_the_generation_prompt_begins(maker: PromptMaker, conversation: str) -> None:
    ends_with_reply = CONVERSATIONS[conversation][-1]["role"] == "assistant"
    for option in OPTIONS:
        rendered = render(maker, conversation, option)
        without = render(maker, conversation, option, prompt=False)
        messages, prompt = rendered.text[: rendered.spans[-1].end], rendered.text[rendered.spans[-1].end :]
        if ends_with_reply and "<|return|>" in maker.template.source:
            assert prompt == "<|start|>assistant"  # without it, the last message itself is another
        else:
            assert messages == without.text
        assert without.spans[-1].end == len(without.text)
        assert len(prompt) < 64


@every_conversation
def test_token_positions_lead_back_to_the_text(maker: PromptMaker, model: Model, conversation: str) -> None:
    text_of = model.vocabulary.detokenize
    for option in OPTIONS:
        rendered = render(maker, conversation, option)
        prompt = maker.from_conversation(asked(conversation, option))
        assert text_of(prompt.tokens).decode() == rendered.text
        for span, message in zip(rendered.spans, prompt.messages, strict=True):
            for offset, position in ((span.start, message.start), (span.end, message.end)):
                whole = rendered.text[:offset].encode()
                assert whole.startswith(text_of(prompt.tokens[:position]))
                # and not one token earlier than it must be
                assert position == prompt.length or len(text_of(prompt.tokens[: position + 1])) > len(whole)


@every_conversation
def test_a_turn_that_goes_on_from_the_last_one_has_the_same_tokens_and_spans(
    maker: PromptMaker, conversation: str
) -> None:
    whole = CONVERSATIONS[conversation]
    turns = [*whole, user("Say it again."), assistant("It is calm."), user("And in Oslo?")]
    turns += [assistant("", tool_calls=[call(3, "get_tide", {"place": "Oslo"})]), result(3, "at dusk")]
    turns += [assistant("At dusk.", reasoning_content="I have it now"), user("Thanks.")]
    tried: set[tuple[str | None, ...]] = set()
    for option in OPTIONS:
        whole_asked = asked(conversation, option)
        asks = [replace(whole_asked, messages=turns[:end]) for end in range(len(whole), len(turns) + 1)]
        texts = tuple(text_of(maker, now) for now in asks)
        if texts in tried:
            continue  # the template does not know the option
        tried.add(texts)
        last = NOT_MADE
        for now, text in zip(asks, texts, strict=True):
            if text is None:
                continue
            fresh, last = maker.make(now), maker.make(now, last=last)
            assert last.prompt.tokens.tolist() == fresh.prompt.tokens.tolist()
            assert last.prompt.messages == fresh.prompt.messages
            assert last.rendered.result == fresh.rendered.result
            assert last.tokenised.text == text


def text_of(maker: PromptMaker, asked: Conversation) -> str | None:
    """As the template alone makes it; None if it refuses the conversation."""
    shown = asked.without_prefill() if asked.prefill else asked
    messages, tools = maker.quirks.messages(shown.messages), maker.quirks.tools(shown.tools)
    try:
        return maker.template.render(messages, tools=tools, options=shown.options) + asked.prefill
    except TemplateError:
        return None


@real
def test_calls_and_results_are_shown_with_their_arguments(maker: PromptMaker) -> None:
    text = render(maker, "tools", "default").text
    for words in ("get_weather", "Oslo", "calm", "No storm.", "get_tide", "Rome", "at noon"):
        assert words in text
    assert "'place'" not in text  # an object as Python prints it


@real
def test_arguments_as_text_and_as_an_object_are_the_same(maker: PromptMaker) -> None:
    def conversation(arguments: object) -> list[MessageDict]:
        calls = [call(1, "get_weather", arguments)]  # type: ignore[arg-type]
        return [user("Storm?"), assistant(None, tool_calls=calls), result(1, "none")]

    texts = {
        maker.render(Conversation(conversation(arguments), TOOLS)).text
        for arguments in ({"place": "Oslo"}, '{"place": "Oslo"}', '{"place":"Oslo"}')
    }
    assert len(texts) == 1


@real
def test_reasoning_before_a_call_is_shown_where_the_template_knows_any(maker: PromptMaker) -> None:
    text = render(maker, "tools", "thinking kept").text
    knows = any(maker.template.mentions(word) for word in ("reasoning_content", 'thinking" in message'))
    assert ("I must ask" in text) == knows


@real
def test_a_growing_conversation_keeps_its_beginning(maker: PromptMaker) -> None:
    """What the cache lives on: a turn adds text, and changes none before the last question."""
    turns = CONVERSATIONS["no system"]
    shorter, longer = maker.render(Conversation(turns[:3])), maker.render(Conversation(turns))
    start = next(span.start for span in shorter.spans if span.index == 2)
    assert longer.text[:start] == shorter.text[:start]
