"""The streaming client puts replies together from any chunks, and says what went wrong."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import httpx
import pytest

from leftoff.client import ChatClient, ClientError, RefusedError, StreamedCall, UnreachableError, connect, read_chunks

Handler = Callable[[httpx.Request], httpx.Response]


def client(handler: Handler) -> ChatClient:
    return ChatClient(httpx.Client(base_url="http://server:8080", transport=httpx.MockTransport(handler)))


def streaming(*chunks: dict[str, Any]) -> Handler:
    text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    return lambda _: httpx.Response(200, text=text)


def saying(**delta: object) -> dict[str, Any]:
    return {"choices": [{"delta": delta}]}


def test_a_reply_is_put_together_and_shown_as_it_comes() -> None:
    shown: list[str] = []
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
    chunks = (
        saying(role="assistant"),
        saying(reasoning_content="hm"),
        saying(content="Hel"),
        saying(content="lo"),
        {"choices": [{"delta": {}, "finish_reason": "length"}], "timings": {"prompt_n": 5}},
        {"choices": [], "usage": usage},
    )
    reply = client(streaming(*chunks)).ask({"messages": []}, shown.append)
    assert (reply.text, reply.reasoning, reply.finish) == ("Hello", "hm", "length")
    assert (reply.prompt_tokens, reply.cached_tokens, reply.timings) == (9, 4, {"prompt_n": 5})
    assert "".join(shown) == "hmHello"
    assert 0 < reply.first_token_ms <= reply.total_ms


def test_pieces_of_calls_are_joined_by_their_index() -> None:
    first = {"index": 0, "id": "a", "function": {"name": "add", "arguments": '{"x":'}}
    second = {"index": 1, "id": "b", "function": {"name": "now", "arguments": "{}"}}
    rest = {"index": 0, "function": {"arguments": "1}"}}
    reply = client(streaming(saying(tool_calls=[first]), saying(tool_calls=[second, rest]))).ask({})
    assert [*reply.calls.values()] == [StreamedCall("a", "add", '{"x":1}'), StreamedCall("b", "now", "{}")]


def test_a_request_is_streamed_and_asks_for_the_usage() -> None:
    seen: list[dict[str, Any]] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(json.loads(request.content))
        return streaming(saying(content="yes"))(request)

    reply = client(handle).ask({"temperature": 0})
    assert seen == [{"temperature": 0, "stream": True, "stream_options": {"include_usage": True}}]
    assert (reply.prompt_tokens, reply.cached_tokens) == (None, None), "a server that does not count"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (httpx.Response(400, json={"error": {"message": "too long", "code": "full"}}), "too long"),
        (httpx.Response(400, json={"error": "too long"}), "too long"),
        (
            httpx.Response(401, json={"error": {"message": "an API key is needed: send it as 'x-api-key: KEY'"}}),
            "an API key is needed: give one with --api-key, or as LEFTOFF_API_KEY",
        ),
        (httpx.Response(502, text="<html>bad gateway</html>"), "<html>bad gateway</html>"),
    ],
)
def test_a_refusal_has_the_servers_reason(answer: httpx.Response, reason: str) -> None:
    with pytest.raises(RefusedError) as error:
        client(lambda _: answer).ask({})
    assert str(error.value) == f"http://server:8080/v1/chat/completions answered {answer.status_code}: {reason}"
    assert error.value.body == answer.text


def test_an_error_in_the_middle_of_a_stream_is_raised() -> None:
    with pytest.raises(ClientError, match="the reply failed: no room"):
        client(streaming(saying(content="a"), {"error": {"message": "no room"}})).ask({})


@pytest.mark.parametrize("data", ["{", "[1]", "null"])
def test_an_event_that_is_no_object_is_an_error(data: str) -> None:
    with pytest.raises(ClientError, match="an event of the stream is no JSON object"):
        client(lambda _: httpx.Response(200, text=f"data: {data}\n\n")).ask({})


def test_a_host_that_can_be_no_name_does_not_answer() -> None:
    with (
        connect("http://a..b:8080", timeout=httpx.Timeout(1)) as http,
        pytest.raises(UnreachableError, match=r"a\.\.b"),
    ):
        ChatClient(http).models()


def test_a_broken_connection_names_the_server() -> None:
    def refuse(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(UnreachableError, match=r"http://server:8080 does not answer \(refused\)"):
        client(refuse).models()


@pytest.mark.parametrize("page", ["[]", "hello", '{"data": [{}]}'])
def test_what_lists_no_models_is_no_server_of_this_kind(page: str) -> None:
    with pytest.raises(ClientError, match="/v1/models lists no model"):
        client(lambda _: httpx.Response(200, text=page)).models()


@pytest.mark.parametrize("page", ["<html>hello</html>", "[]", ""])
def test_an_answer_that_is_no_object_is_of_another_server(page: str) -> None:
    with pytest.raises(ClientError, match="http://server:8080 is no server of leftoff's"):
        client(lambda _: httpx.Response(200, text=page)).call("GET", "/health")


@pytest.mark.parametrize("status", [200, 302, 404])
def test_a_web_page_is_called_one(status: int) -> None:
    asked = client(lambda _: httpx.Response(status, html="<html>hello</html>"))
    for ask in (asked.listed, lambda: asked.call("GET", "/health"), lambda: asked.ask({})):
        with pytest.raises(ClientError, match="web page, and is no server of leftoff's: give the address"):
            ask()


@pytest.mark.parametrize("lines", [['data: {"a":1}', "", ": comment", 'data:{"b":2}', "data: [DONE]", "data: {"]])
def test_events_are_read_until_they_are_done(lines: Iterable[str]) -> None:
    assert [*read_chunks(lines)] == [{"a": 1}, {"b": 2}]
