"""Conversations, as OpenAI's own client sees them."""

from typing import Any

import openai
import pytest

from leftoff.server.responses.conversations import KeptConversation
from tests.server.responses.test_routes import STORY, ask, cached, prompt_tokens, stream


def texts(client: openai.OpenAI, name: str, **fields: Any) -> list[str]:  # noqa: ANN401
    """Of all messages in a conversation, the oldest first."""
    items: list[Any] = [*client.conversations.items.list(name, order="asc", **fields)]
    return [item.content[0].text for item in items]


def test_a_response_goes_on_in_a_conversation(client: openai.OpenAI) -> None:
    conversation = client.conversations.create(items=[{"role": "user", "content": "be brief"}], metadata={"ship": "7"})
    first = ask(client, conversation=conversation.id)
    assert (first.conversation and first.conversation.id) == conversation.id
    second = stream(client, input="and then", conversation={"id": conversation.id}, max_output_tokens=12)[-1].response
    assert texts(client, conversation.id) == ["be brief", STORY, first.output_text, "and then", second.output_text]
    by_hand = ask(
        client,
        input=[
            {"role": "user", "content": "be brief"},
            {"role": "user", "content": STORY},
            {"role": "assistant", "content": first.output_text},
            {"role": "user", "content": "and then"},
        ],
    )
    assert by_hand.output_text == second.output_text
    assert cached(by_hand) == prompt_tokens(by_hand) == prompt_tokens(second)
    after = ask(client, input="go on", previous_response_id=second.id)
    assert prompt_tokens(after) > prompt_tokens(second), "a response knows what came before it in its conversation"


def test_a_conversation_is_kept_changed_and_deleted(client: openai.OpenAI) -> None:
    made = client.conversations.create(metadata={"ship": "7"})
    assert client.conversations.retrieve(made.id) == made
    assert client.conversations.update(made.id, metadata={"ship": "8"}).metadata == {"ship": "8"}
    assert client.conversations.retrieve(made.id).metadata == {"ship": "8"}
    assert client.conversations.delete(made.id).deleted
    for gone in (made.id, "conv_unknown"):
        with pytest.raises(openai.NotFoundError, match="Create another"):
            client.conversations.retrieve(gone)
        with pytest.raises(openai.NotFoundError):
            ask(client, conversation=gone)


def test_items_are_listed_found_and_deleted(client: openai.OpenAI) -> None:
    name = client.conversations.create().id
    words = [f"number {number}" for number in range(5)]
    made = client.conversations.items.create(name, items=[{"role": "user", "content": text} for text in words])
    assert [item.id for item in made.data] == [*dict.fromkeys(item.id for item in made.data)]
    assert texts(client, name) == texts(client, name, limit=2) == words, "page by page"
    newest = client.conversations.items.list(name, limit=1)
    assert (newest.data[0].id, newest.has_more) == (made.last_id, True)
    second = made.data[1].id or ""
    item = client.conversations.items.retrieve(second, conversation_id=name)
    assert (item.id, item.type) == (second, "message")
    client.conversations.items.delete(second, conversation_id=name)
    assert texts(client, name) == [words[0], *words[2:]]
    with pytest.raises(openai.NotFoundError, match="no item"):
        client.conversations.items.retrieve(second, conversation_id=name)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"items": [{"role": "pirate", "content": "a"}]}, r"items\[0\].role"),
        ({"items": [{"role": "user", "content": [{"type": "hologram"}]}]}, r"items\[0\].content\[0\]"),
        ({"items": 7}, "items"),
    ],
)
def test_bad_items_are_refused_by_their_place(client: openai.OpenAI, fields: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(openai.BadRequestError, match=message):
        client.conversations.create(**fields)


def test_a_request_goes_on_from_one_thing_only(client: openai.OpenAI) -> None:
    name = client.conversations.create().id
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        ask(client, conversation=name, previous_response_id=ask(client).id)
    with pytest.raises(openai.BadRequestError, match="conversation"):
        ask(client, conversation={"name": name})
    for query in ({"limit": 0}, {"limit": "many"}, {"after": "msg_1"}):
        with pytest.raises(openai.BadRequestError, match=next(iter(query))):
            client.conversations.items.list(name, extra_query=query)


def test_bytes_are_counted_as_items_come_and_go() -> None:
    item = {"id": "msg_1", "type": "message", "role": "user", "content": "x" * 100}
    empty = KeptConversation("conv_1", 0, {})
    one = empty.with_items([item])
    assert one.num_bytes > 100
    assert one.with_items([item]).num_bytes == 2 * one.num_bytes
    assert one.without(one.items[0]) == empty
