"""Responses, as OpenAI's own client sees them."""

from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import Response

from leftoff.engine.errors import InputError
from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.server.request.fields import Message
from leftoff.server.responses.convert import Items, as_chat, flat_name, wrapped
from leftoff.server.responses.store import Stored, TenantStore
from leftoff.server.responses.types import InputItem, ResponsesRequest
from leftoff.server.server import serving
from tests.server.fixtures import CONTEXT_TOKENS, settings

STORY = "tell me the best story " * 20


def ask(client: openai.OpenAI, **fields: Any) -> Response:  # noqa: ANN401
    values: dict[str, Any] = {"model": "tiny", "input": STORY, "temperature": 0, "max_output_tokens": 12} | fields
    reply: Response = client.responses.create(**values)
    return reply


def stream(client: openai.OpenAI, **fields: Any) -> list[Any]:  # noqa: ANN401
    values: dict[str, Any] = {"model": "tiny", "input": STORY, "temperature": 0, "max_output_tokens": 3} | fields
    return list(client.responses.create(stream=True, **values))


def cached(reply: Response) -> int:
    assert reply.usage is not None
    return reply.usage.input_tokens_details.cached_tokens


def prompt_tokens(reply: Response) -> int:
    assert reply.usage is not None
    return reply.usage.input_tokens


def test_a_response_is_given(client: openai.OpenAI) -> None:
    reply = ask(client, instructions="you keep a lamp in the window", metadata={"ship": "7"})
    assert len(reply.output_text.split()) == 12
    assert (reply.object, reply.model, reply.status) == ("response", "tiny", "incomplete")
    assert reply.incomplete_details is not None
    assert reply.incomplete_details.reason == "max_output_tokens"
    assert (reply.instructions, reply.metadata) == ("you keep a lamp in the window", {"ship": "7"})
    assert reply.usage is not None
    assert reply.usage.output_tokens == 12
    assert reply.usage.total_tokens == reply.usage.input_tokens + 12
    assert reply.usage.input_tokens_details.cache_write_tokens == reply.usage.input_tokens - cached(reply)


def test_the_events_come_in_order_and_numbered(client: openai.OpenAI) -> None:
    events = stream(client)
    assert [event.type for event in events] == [
        *("response.created", "response.in_progress"),
        *("response.output_item.added", "response.content_part.added"),
        *["response.output_text.delta"] * 3,
        *("response.output_text.done", "response.content_part.done", "response.output_item.done"),
        "response.incomplete",
    ]
    assert [event.sequence_number for event in events] == [*range(len(events))]
    whole = ask(client, max_output_tokens=3)
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    assert events[-1].response.output_text == whole.output_text
    assert events[-1].response.output[0].status == "incomplete"
    assert (events[0].response.status, events[0].response.output) == ("in_progress", [])


def test_the_model_may_end_the_response(client: openai.OpenAI, http: httpx.Client) -> None:
    (end,) = http.post("/tokenize", json={"content": "<|im_end|>"}).json()["tokens"]
    reply = ask(client, extra_body={"logit_bias": {str(end): 100}})
    assert (reply.status, reply.output, reply.incomplete_details) == ("completed", [], None)
    assert stream(client, extra_body={"logit_bias": {str(end): 100}})[-1].type == "response.completed"


def test_what_was_read_once_is_not_read_again(client: openai.OpenAI) -> None:
    first, second = ask(client), ask(client)
    assert (cached(first), cached(second)) == (0, prompt_tokens(second))
    assert first.output_text == second.output_text


def test_a_response_goes_on_from_another(client: openai.OpenAI) -> None:
    first = ask(client)
    second = ask(client, input="and then", previous_response_id=first.id)
    by_hand = ask(
        client,
        input=[
            {"role": "user", "content": STORY},
            {"role": "assistant", "content": first.output_text},
            {"role": "user", "content": [{"type": "input_text", "text": "and then"}]},
        ],
    )
    assert second.output_text == by_hand.output_text
    assert cached(by_hand) == prompt_tokens(by_hand) == prompt_tokens(second)
    assert first.usage is not None
    assert cached(second) == first.usage.total_tokens - 1, "all but the last word, which nobody has read"
    third = ask(client, input="go on", previous_response_id=second.id)
    assert cached(third) > prompt_tokens(second)


def test_instructions_are_given_anew_each_time(client: openai.OpenAI) -> None:
    first = ask(client, instructions="be brief")
    second = ask(client, input="and then", previous_response_id=first.id)
    without = ask(client, input="and then", previous_response_id=ask(client).id)
    assert prompt_tokens(second) == prompt_tokens(without)


def test_responses_are_kept_until_they_are_deleted(client: openai.OpenAI) -> None:
    kept, streamed = ask(client), stream(client)[-1].response
    assert client.responses.retrieve(kept.id) == kept
    assert client.responses.retrieve(streamed.id).output_text == streamed.output_text
    client.responses.delete(kept.id)
    unkept = ask(client, store=False)
    for gone in (kept.id, unkept.id, "resp_unknown"):
        with pytest.raises(openai.NotFoundError, match=r"it was not stored, or is forgotten$") as missing:
            client.responses.retrieve(gone)
        assert missing.value.param is None
        with pytest.raises(openai.NotFoundError, match="Send the whole input"):
            ask(client, previous_response_id=gone)


def test_nobody_goes_on_from_the_response_of_another() -> None:
    with (
        open_host(settings(api_key=("one", "two"))) as host,
        serving(host) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="one", max_retries=0) as one,
        openai.OpenAI(base_url=f"{url}/v1", api_key="two", max_retries=0) as two,
    ):
        first = ask(one)
        ask(one, previous_response_id=first.id)
        with pytest.raises(openai.NotFoundError):
            ask(two, previous_response_id=first.id)
        with pytest.raises(openai.NotFoundError, match="Send the item itself"):
            ask(two, input=[{"type": "item_reference", "id": first.output[0].id}])
        conversation = one.conversations.create()
        with pytest.raises(openai.NotFoundError, match="Create another"):
            ask(two, conversation=conversation.id)


def test_tools_that_are_no_functions_are_skipped(client: openai.OpenAI, http: httpx.Client) -> None:
    ship = {"type": "function", "name": "find_ship", "parameters": {"type": "object"}, "strict": False}
    hosted: list[Any] = [{"type": "web_search"}, {"type": "custom", "name": "apply_patch"}]
    reply = ask(client, tools=[*hosted, ship])
    assert prompt_tokens(reply) == prompt_tokens(ask(client, tools=[ship])) > prompt_tokens(ask(client))
    assert len(reply.tools) == 3, "what was asked for is said again"
    ask(client, tools=hosted)
    (request,) = http.get("/cache/requests?n=1").json()["requests"]
    assert "web_search, apply_patch" in " ".join(request["notes"])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"input": []}, "input: is empty"),
        ({"input": openai.omit}, "input: is empty"),
        ({"input": [{"role": "pirate", "content": "a"}]}, r"input\[0\].role"),
        (
            {"input": [{"role": "user", "content": [{"type": "hologram", "url": "x"}]}]},
            r"content\[0\]: a part",
        ),
        ({"input": [{"type": "function_call", "call_id": "1", "arguments": "{}"}]}, r"input\[0\].name"),
        ({"tools": [{"type": "function"}]}, r"tools\[0\].name"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"background": True}, "background"),
        ({"top_logprobs": 3}, "top_logprobs"),
    ],
)
def test_bad_input_is_refused_by_its_field(client: openai.OpenAI, fields: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(openai.BadRequestError, match=message):
        ask(client, **fields)


def test_a_prompt_that_is_too_long_is_the_input(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, input="the " * (CONTEXT_TOKENS + 1))
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "input")
    with pytest.raises(openai.BadRequestError) as refused:  # it is not even counted to the end
        client.responses.input_tokens.count(model="tiny", input="the " * 100 * CONTEXT_TOKENS)
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "input")


def test_what_one_reply_consists_of_is_one_message_again() -> None:
    items = [
        InputItem("reasoning", summary=[], encrypted_content="of another server"),
        InputItem(role="user", content="where is the ship"),
        InputItem("reasoning", summary=[], encrypted_content=wrapped("I must look")),
        InputItem(role="assistant", content=[{"type": "output_text", "text": "let me look"}]),
        InputItem("function_call", call_id="1", name="find_ship", arguments="{}"),
        InputItem("function_call", call_id="2", name="find_ship", arguments='{"sea": 7}'),
        InputItem("web_search_call"),
        InputItem("function_call_output", call_id="1", output="here"),
        InputItem("function_call_output", call_id="2", output=[{"type": "input_text", "text": "there"}]),
        InputItem("reasoning", summary=[], content=[{"type": "reasoning_text", "text": "found"}]),
        InputItem(role="assistant", content="it is here"),
        InputItem(role="assistant", content="and there"),
    ]
    question, reply, *results, answer, more = Items(items).messages
    assert (question.role, question.content) == ("user", "where is the ship")
    assert (reply.role, reply.reasoning_content, reply.content) == ("assistant", "I must look", "let me look")
    assert [(call.id, call.function.arguments) for call in reply.tool_calls or ()] == [("1", "{}"), ("2", '{"sea": 7}')]
    assert [(result.role, result.tool_call_id, result.content) for result in results] == [
        ("tool", "1", "here"),
        ("tool", "2", "there"),
    ]
    assert (answer.reasoning_content, answer.content, more.content) == ("found", "it is here", "and there")


def test_the_store_is_bounded_in_number_and_bytes() -> None:
    few: TenantStore[Stored] = TenantStore(max_entries=3, max_bytes=1 << 20)
    small: TenantStore[Stored] = TenantStore(max_entries=100, max_bytes=40_000, num_tenants=2)
    for number in range(10):
        name, words = f"resp_{number}", [Message("user", "x" * 4000)]
        few.put("", name, Stored.after(None, response(name), words))
        small.put("", name, Stored.after(None, response(name), words))
        small.put("another", f"other_{number}", Stored.after(None, response(name), words))
    assert [few.get("", f"resp_{number}") is not None for number in range(10)] == [False] * 7 + [True] * 3
    assert sum(small.get("", f"resp_{number}") is not None for number in range(10)) == 4
    assert small.get("", "resp_9") is not None
    assert small.get("other", "resp_9") is None
    assert small.delete("", "resp_9")
    assert not small.delete("", "resp_9")


def response(name: str) -> dict[str, Any]:
    """About as many bytes as one without an output has."""
    return {"id": name, "status": "completed", "output": [], "settings": "x" * 350}


def test_an_image_becomes_a_note() -> None:
    image = {"type": "input_image", "image_url": "data:,"}
    shot = InputItem("function_call_output", call_id="1", output=[{"type": "input_text", "text": "done"}, image])
    seen = InputItem(role="user", content=[image])
    note = "[image left out: this model reads text only]"
    chat = as_chat(ResponsesRequest(), Items([shot, seen]).messages, [])
    shown = chat.conversation("", shows_all_tools=True).messages
    assert [message["content"] for message in shown] == [f"done{note}", note]


def test_items_are_named_by_their_ids(client: openai.OpenAI) -> None:
    first = ask(client)
    story, more = {"role": "user", "content": STORY}, {"role": "user", "content": "and then"}
    second = ask(client, input=[story, {"type": "item_reference", "id": first.output[0].id}, more])
    by_hand = ask(client, input=[story, {"role": "assistant", "content": first.output_text}, more])
    assert second.output_text == by_hand.output_text
    assert prompt_tokens(second) == prompt_tokens(by_hand)
    for unknown in ("msg_1", f"{first.output[0].id}7", ""):
        with pytest.raises(openai.NotFoundError, match=r"input\[0\].id: there is no item"):
            ask(client, input=[{"type": "item_reference", "id": unknown}])


def test_an_input_is_counted(client: openai.OpenAI) -> None:
    fields: dict[str, Any] = {"model": "tiny", "input": STORY, "instructions": "be brief"}
    counted = client.responses.input_tokens.count(**fields)
    assert (counted.object, counted.input_tokens) == ("response.input_tokens", prompt_tokens(ask(client, **fields)))
    first = ask(client)
    more = client.responses.input_tokens.count(model="tiny", input="and then", previous_response_id=first.id)
    assert more.input_tokens > prompt_tokens(first)
    assert client.responses.input_tokens.count(model="tiny", input="the " * (CONTEXT_TOKENS + 1)).input_tokens > 4096


NEXT_HIGH = {"type": "function", "name": "next_high", "parameters": {"type": "object"}, "strict": False}
TIDES = {"type": "namespace", "name": "mcp__tides", "description": "Of the sea.", "tools": [NEXT_HIGH]}


def test_functions_of_a_namespace_are_offered_under_one_name(client: openai.OpenAI, http: httpx.Client) -> None:
    flat = NEXT_HIGH | {"name": "mcp__tides__next_high"}
    in_namespace, outside = ask(client, tools=[TIDES]), ask(client, tools=[flat])
    assert prompt_tokens(in_namespace) == prompt_tokens(outside)
    assert cached(outside) == prompt_tokens(outside), "the prompt is the same"
    (request, *_) = http.get("/cache/requests?n=1").json()["requests"]
    assert not request["notes"]
    for wrong, place in (({"tools": [{"type": "function"}]}, r"\.tools\[0\].name"), ({"tools": 7}, r"\.tools")):
        with pytest.raises(openai.BadRequestError, match=rf"tools\[0\]{place}"):
            ask(client, tools=[TIDES | wrong])


def test_a_call_that_comes_back_is_known_by_both_names() -> None:
    back = InputItem("function_call", call_id="1", name="next_high", namespace="mcp__tides", arguments="{}")
    (message,) = Items([back]).messages
    assert [call.function.name for call in message.tool_calls or ()] == ["mcp__tides__next_high"]


def test_names_are_joined_once() -> None:
    assert flat_name("mcp__tides", "next") == flat_name("mcp__tides__", "next") == "mcp__tides__next"
    assert flat_name("functions", "next") == flat_name(None, "next") == "next"


def test_a_stream_that_fails_before_it_has_begun_is_a_failed_response(
    client: openai.OpenAI, host: ModelHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise InputError("no such river")

    monkeypatch.setattr(host.cache, "begin", fail)
    with client.responses.stream(model="tiny", input="the river") as stream:
        *begun, failed = stream
    assert [event.type for event in begun] == ["response.created", "response.in_progress"]
    assert failed.type == "response.failed"
    assert failed.response.error is not None
    assert failed.response.error.message == "no such river"
