"""Messages, as Anthropic's own client sees them."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import msgspec
import pytest
from anthropic.types import Message, MessageParam, TextBlockParam

from leftoff.host.build import open_host
from leftoff.server.anthropic.convert import MarkedMessages, as_chat
from leftoff.server.anthropic.types import MessagesRequest
from leftoff.server.server import serving
from tests.patience import PATIENCE_S
from tests.server.fixtures import CONTEXT_TOKENS, settings

LAMP = "you keep a lamp in the window " * 8
MESSAGES: list[MessageParam] = [{"role": "user", "content": "tell me the best story " * 20}]


@pytest.fixture
def claude(http: httpx.Client, url: str) -> Iterator[anthropic.Anthropic]:
    assert http.head("/").status_code == 200
    with anthropic.Anthropic(base_url=url, api_key="any", max_retries=0, timeout=PATIENCE_S) as client:
        yield client


def ask(claude: anthropic.Anthropic, **fields: Any) -> Message:  # noqa: ANN401
    values: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "max_tokens": 12} | fields
    values["extra_body"] = {"temperature": 0} | values.get("extra_body", {})
    reply: Message = claude.messages.create(**values)
    return reply


def text_of(message: Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def total(message: Message) -> int:
    usage = message.usage
    return usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)


def read(message: Message) -> int:
    return message.usage.cache_read_input_tokens or 0


def count(claude: anthropic.Anthropic, **fields: Any) -> int:  # noqa: ANN401
    values: dict[str, Any] = {"model": "tiny", "messages": MESSAGES} | fields
    tokens: int = claude.messages.count_tokens(**values).input_tokens
    return tokens


def marked(text: str) -> TextBlockParam:
    return {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}


def test_a_message_is_answered(claude: anthropic.Anthropic) -> None:
    reply = ask(claude, system=LAMP)
    assert len(text_of(reply).split()) == 12
    assert (reply.type, reply.role, reply.model) == ("message", "assistant", "tiny")
    assert (reply.stop_reason, reply.stop_sequence) == ("max_tokens", None)
    assert reply.id.startswith("msg_")
    assert reply.usage.output_tokens == 12
    assert total(reply) == count(claude, system=LAMP)


def test_a_stream_says_the_same(claude: anthropic.Anthropic) -> None:
    reply = ask(claude)
    with claude.messages.stream(
        model="tiny", messages=MESSAGES, max_tokens=12, extra_body={"temperature": 0}
    ) as stream:
        said = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert said == text_of(final) == text_of(reply)
    assert final.stop_reason == "max_tokens"
    assert (total(final), final.usage.output_tokens) == (total(reply), 12)


def test_a_text_without_citations_has_no_field_for_them(http: httpx.Client) -> None:
    """Some clients take a list there, or nothing."""
    body = {"model": "tiny", "max_tokens": 4, "messages": MESSAGES}
    (block,) = http.post("/v1/messages", json=body).json()["content"]
    assert block.keys() == {"type", "text"}


def test_the_events_come_in_order(http: httpx.Client) -> None:
    body = {"messages": MESSAGES, "max_tokens": 3, "temperature": 0, "stream": True}
    reply = http.post("/v1/messages", json=body, headers={"anthropic-version": "2023-06-01"})
    assert reply.headers["content-type"].startswith("text/event-stream")
    events = [dict(line.split(": ", 1) for line in event.splitlines()) for event in reply.text.strip().split("\n\n")]
    assert [event["event"] for event in events] == [
        *("message_start", "ping", "content_block_start"),
        *["content_block_delta"] * 3,
        *("content_block_stop", "message_delta", "message_stop"),
    ]
    assert all(json.loads(event["data"])["type"] == event["event"] for event in events)
    start, delta = json.loads(events[0]["data"]), json.loads(events[-2]["data"])
    assert start["message"]["usage"]["input_tokens"] == delta["usage"]["input_tokens"] > 0
    assert delta["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}


def test_what_was_read_once_is_said_to_be_read_from_the_cache(claude: anthropic.Anthropic) -> None:
    first, second = ask(claude), ask(claude)
    assert (read(first), read(second)) == (0, total(second))
    assert first.usage.cache_creation_input_tokens == 0, "nobody asked for it"
    assert text_of(first) == text_of(second)


def test_what_stands_before_a_mark_is_said_to_be_written_to_the_cache(claude: anthropic.Anthropic) -> None:
    system = [marked(LAMP)]
    first = ask(claude, system=system)
    header = first.usage.cache_creation_input_tokens or 0
    assert 0 < first.usage.input_tokens < total(first) == count(claude, system=system)
    assert header == total(first) - first.usage.input_tokens
    other = ask(claude, system=system, messages=[{"role": "user", "content": "and now something else"}])
    assert (read(other), other.usage.cache_creation_input_tokens) == (header, 0)


def test_a_mark_is_a_place_to_resume_from(claude: anthropic.Anthropic) -> None:
    def conversation(content: Any, last: str) -> list[MessageParam]:  # noqa: ANN401
        return [
            {"role": "user", "content": content},
            {"role": "assistant", "content": "the old man " * 4},
            {"role": "user", "content": last},
        ]

    question = "the river runs down " * 5
    ask(claude, messages=conversation(question, "and then"), extra_body={"cache_salt": "unmarked"})
    ask(claude, messages=conversation([marked(question)], "and then"))
    other: list[MessageParam] = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": "no"},
        *MESSAGES,
    ]
    without = ask(claude, messages=other, extra_body={"cache_salt": "unmarked"})
    assert read(ask(claude, messages=other)) > read(without)


def test_the_billing_line_is_dropped(claude: anthropic.Anthropic, http: httpx.Client) -> None:
    for number in ("1a2b3", "9f8e7"):
        billing = f"x-anthropic-billing-header: cc_version=2.1.37.0d9; cc_entrypoint=cli; cch={number};"
        system: list[TextBlockParam] = [{"type": "text", "text": billing}, {"type": "text", "text": LAMP}]
        reply = ask(claude, system=system)
    assert read(reply) == total(reply)
    assert "x-anthropic-billing-header" in notes(http)


def notes(http: httpx.Client) -> str:
    return " ".join(http.get("/cache/requests?n=1").json()["requests"][0]["notes"])


def test_blocks_are_the_same_prompt_as_their_text(claude: anthropic.Anthropic) -> None:
    ask(claude, system=f"{LAMP}\n{LAMP}")
    blocks: list[TextBlockParam] = [{"type": "text", "text": LAMP}, {"type": "text", "text": LAMP}]
    reply = ask(
        claude,
        system=blocks,
        messages=[{"role": "user", "content": [{"type": "text", "text": str(MESSAGES[0]["content"])}]}],
    )
    assert read(reply) == total(reply)


def test_a_stop_sequence_ends_the_reply(claude: anthropic.Anthropic) -> None:
    text = text_of(ask(claude))
    stop = text.split()[4]
    reply = ask(claude, stop_sequences=["never said", stop])
    assert text_of(reply) == text[: text.index(stop)]
    assert (reply.stop_reason, reply.stop_sequence) == ("stop_sequence", stop)


def test_tools_reach_the_prompt_but_for_those_of_other_servers(claude: anthropic.Anthropic, http: httpx.Client) -> None:
    own = {"name": "find_ship", "description": "Finds a ship", "input_schema": {"type": "object"}}
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
    assert count(claude) < count(claude, tools=[own]) == count(claude, tools=[own, search])
    assert count(claude, tools=[own], tool_choice={"type": "none"}) == count(claude, tools=[own]), "the cache holds"
    ask(claude, tools=[own, search])
    assert "web_search" in notes(http)


def test_a_conversation_with_all_kinds_of_blocks_is_read(claude: anthropic.Anthropic) -> None:
    found = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "far out"}]}
    nothing = {"type": "tool_result", "tool_use_id": "t2", "is_error": True}
    messages: Any = [
        {"role": "user", "content": "where is the ship"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "I must look", "signature": "s"},
                {"type": "redacted_thinking", "data": "…"},
                {"type": "text", "text": "let me look"},
                {"type": "tool_use", "id": "t1", "name": "find_ship", "input": {"sea": 7}},
                {"type": "tool_use", "id": "t2", "name": "find_ship", "input": {}},
            ],
        },
        {"role": "user", "content": [found, nothing, {"type": "text", "text": "go on"}]},
        {"role": "system", "content": "the tide turns"},
    ]
    reply = ask(claude, messages=messages, tools=[{"name": "find_ship", "input_schema": {"type": "object"}}])
    assert reply.usage.output_tokens == 12


def test_fields_of_betas_are_ignored(claude: anthropic.Anthropic) -> None:
    reply = claude.beta.messages.create(
        model="tiny",
        messages=[{"role": "user", "content": "hello"}],
        max_tokens=3,
        betas=["context-management-2025-06-27"],
        context_management={"edits": [{"type": "clear_tool_uses_20250919"}]},
        metadata={"user_id": "user_1_session_2"},
    )
    assert reply.usage.output_tokens == 3


PNG = {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}
IMAGE = {"type": "image", "source": PNG}
NO_IMAGE = "[image left out: this model reads text only]"


def texts(*content: Any) -> list[str]:  # noqa: ANN401
    """The messages that the content of one message becomes."""
    body = msgspec.convert({"messages": [{"role": "user", "content": [*content]}]}, MessagesRequest)
    chat = as_chat(body, MarkedMessages(body).messages)
    return [message["content"] for message in chat.conversation("", shows_all_tools=True).messages]


def test_an_image_becomes_a_note() -> None:
    assert texts({"type": "text", "text": "look"}, IMAGE) == [f"look\n{NO_IMAGE}"]
    result = {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "a shot"}, IMAGE]}
    assert texts(result, {"type": "text", "text": "and now?"}) == [f"a shot\n{NO_IMAGE}", "and now?"]


def test_a_document_of_text_is_read_and_a_file_becomes_a_note() -> None:
    plain = {"type": "text", "media_type": "text/plain", "data": "the tide turns at six"}
    assert texts({"type": "document", "source": plain, "title": "Tides"}) == ["Tides\nthe tide turns at six"]
    parts = {"type": "content", "content": [{"type": "text", "text": "at six"}, IMAGE]}
    assert texts({"type": "document", "source": parts, "context": "a log"}) == [f"a log\nat six\n{NO_IMAGE}"]
    no_file = "[file left out: this model reads text only]"
    assert texts({"type": "document", "source": {**PNG, "media_type": "application/pdf"}}) == [no_file]
    inner = {"type": "content", "content": [{"type": "document", "source": plain}]}
    assert texts({"type": "document", "source": inner}) == [no_file], "documents are not nested"
    found = {"type": "search_result", "source": "x", "title": "Tides", "content": [{"type": "text", "text": "at six"}]}
    assert texts(found) == ["Tides\nat six"]


def test_a_session_goes_on_after_a_screenshot(claude: anthropic.Anthropic) -> None:
    messages: list[Any] = [*MESSAGES]
    for turn in range(3):
        reply = ask(claude, messages=messages)
        assert turn == 0 or read(reply) > 0
        messages += [
            {"role": "assistant", "content": [{"type": "tool_use", "id": f"c{turn}", "name": "shoot", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"c{turn}", "content": [IMAGE]}]},
        ]


def test_what_is_not_known_is_refused_by_its_place(claude: anthropic.Anthropic) -> None:
    kind = "hologram"
    content: Any = [{"type": "text", "text": "look"}, {"type": kind, "source": PNG}]
    with pytest.raises(anthropic.BadRequestError) as refused:
        ask(claude, messages=[{"role": "user", "content": content}])
    error = refused.value.response.json()
    assert error["type"] == "error"
    assert error["error"]["type"] == "invalid_request_error"
    assert f"messages[0].content[1]: a part of type '{kind}'" in error["error"]["message"]
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": "found"}
    with pytest.raises(anthropic.BadRequestError, match=r"messages\[0\]\.content\[2\]: a part of type"):
        ask(claude, messages=[{"role": "user", "content": [result, *content]}])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "1"}]}]}, r"content\[0\].name"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result", "content": 7}]}]}, r"content\[0\].content"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, r"content\[0\].text"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"tools": [{"input_schema": {"type": "object"}}]}, r"tools\[0\].name"),
        ({"output_config": {"format": {"type": "yaml"}}}, "output_config.format.type"),
    ],
)
def test_bad_input_is_refused_by_its_field(claude: anthropic.Anthropic, fields: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(anthropic.BadRequestError, match=message):
        ask(claude, **fields)


def test_a_prompt_that_is_too_long_is_said_in_the_words_agents_wait_for(claude: anthropic.Anthropic) -> None:
    long: Any = [{"role": "user", "content": "down " * (CONTEXT_TOKENS + 100)}]
    tokens = count(claude, messages=long)
    with pytest.raises(anthropic.BadRequestError, match=f"prompt is too long: {tokens} tokens > {CONTEXT_TOKENS} max"):
        ask(claude, messages=long)


def test_the_models_are_listed(claude: anthropic.Anthropic) -> None:
    (model,) = claude.models.list()
    assert (model.id, model.type, model.display_name) == ("tiny", "model", "tiny")
    assert model.created_at == claude.models.retrieve("tiny").created_at


def test_errors_outside_of_the_routes_have_the_same_shape(http: httpx.Client) -> None:
    reply = http.post("/v1/messages/batches", json={})
    assert (reply.status_code, reply.json()["error"]["type"]) == (404, "not_found_error")


def test_a_key_is_asked_for_and_taken() -> None:
    with (
        open_host(settings(api_key=("secret",))) as host,
        serving(host) as url,
        anthropic.Anthropic(base_url=url, api_key="wrong", max_retries=0) as stranger,
        anthropic.Anthropic(base_url=url, api_key="secret", max_retries=0) as friend,
    ):
        with pytest.raises(anthropic.AuthenticationError) as refused:
            ask(stranger)
        assert refused.value.response.json()["error"]["type"] == "authentication_error"
        assert ask(friend).usage.output_tokens == 12


def test_a_deferred_tool_is_described_where_a_search_finds_it() -> None:
    """It would change the header when a client loads it, and all behind that would be read again."""
    schema = {"type": "object", "properties": {"harbour": {"type": "string"}}}
    tide = {"name": "tide", "description": "Tells the tide.", "input_schema": schema, "defer_loading": True}
    call = {"type": "tool_use", "id": "t1", "name": "search", "input": {}}
    found = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "tool_reference", "tool_name": "tide"}]}
    turns = [
        {"role": "user", "content": "When is high water?"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [found]},
    ]
    search = {"name": "search", "input_schema": {"type": "object"}}
    with open_host(settings()) as host:

        def prompt(*tools: dict[str, Any]) -> str:
            body = msgspec.convert({"messages": turns, "tools": tools, "max_tokens": 1}, MessagesRequest)
            chat = as_chat(body, MarkedMessages(body).messages)
            return host.chats.text(chat.conversation("", shows_all_tools=True))

        with_tide, without = prompt(search, tide), prompt(search)
    header = without.index("When is high water?")
    assert with_tide[:header] == without[:header]
    assert "Tells the tide." in with_tide[header:]
    assert "tool tide" in without, "one that is not there is named"
