"""A picture that was sent before is known in the bytes of the body, wherever a dialect has pictures; a text is not."""

import base64
import json
from typing import Any

import httpx
import numpy as np
import pytest
from blake3 import blake3

from leftoff.chat.conversation import Conversation
from leftoff.host.host import ModelHost
from leftoff.picture import KnownFile
from leftoff.server.http.known_files import KnownFiles
from tests.pictures import marker, noise

SHOT = noise(1, 1200)
TEXT = base64.b64encode(SHOT).decode()
URL = f"data:image/png;base64,{TEXT}"
DIGEST = blake3(SHOT).digest()


def body(*texts: str) -> bytes:
    return json.dumps({"first": 'said \\ " so', "all": [*texts]}).encode()


@pytest.fixture
def known() -> KnownFiles:
    known = KnownFiles()
    known.learn("me", URL, DIGEST)
    return known


def test_a_known_text_has_a_name_instead(known: KnownFiles) -> None:
    data = body("before", URL, "between", URL)
    named = known.named("me", data)
    first, second = named.files
    assert json.loads(named.data) == {"first": 'said \\ " so', "all": ["before", first, "between", second]}
    assert [(str(file.text, "ascii"), file.digest) for file in named.files.values()] == [(URL, DIGEST)] * 2


def test_names_of_other_files_differ_in_all_requests(known: KnownFiles) -> None:
    other = URL[:-8] + "AAAAAAA="
    known.learn("me", other, b"another")
    assert known.named("me", body(URL)).files.keys().isdisjoint(known.named("me", body(other)).files)


@pytest.mark.parametrize(
    "text",
    [
        TEXT,  # another text, though of the same picture
        URL[:-1] + "A",
        URL + "A",
        URL[:-4],
        f'"{URL}"',  # quoted inside of a text
        f"see {URL}",
        URL.replace("iVBOR", "iVBOS"),
    ],
)
def test_nothing_else_has(known: KnownFiles, text: str) -> None:
    for data in (body(text), body("", text, text), body("x" * 9000, text)):
        assert known.named("me", data).files == {}
        assert known.named("me", data).data == data


def test_what_one_owner_sent_is_not_known_of_another(known: KnownFiles) -> None:
    assert known.named("you", body(URL)).files == {}
    known.forget()
    assert known.named("me", body(URL)).files == {}


def test_every_long_text_is_found_wherever_it_lies(known: KnownFiles) -> None:
    rng = np.random.default_rng(0)
    texts = [base64.b64encode(rng.bytes(int(size))).decode() for size in rng.integers(13_000, 90_000, 30)]
    for text in texts:
        known.learn("me", text, blake3(text.encode()).digest())
    for start in range(0, 20_000, 997):
        found = known.named("me", body("y" * start, *texts)).files.values()
        assert [str(file.text, "ascii") for file in found] == texts


# --- through the doors of the dialects

PICTURE = {"type": "image_url", "image_url": {"url": URL}}
BLOCK = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": TEXT}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": [BLOCK]}
USE = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
SHOWN = {"type": "input_image", "image_url": URL}
CALL = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": [SHOWN]}


def user(content: object, **more: object) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def post(http: httpx.Client, path: str, fields: dict[str, Any]) -> Any:  # noqa: ANN401
    answer = http.post(path, json={"model": "tiny", "max_tokens": 1, "options": {"num_predict": 1}, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions", {"messages": [user([PICTURE])]}),
        ("/v1/chat/completions", {"messages": [user([{"type": "image_url", "image_url": URL}])]}),
        ("/v1/messages", {"messages": [user([BLOCK])]}),
        ("/v1/messages", {"messages": [user("hi"), {"role": "assistant", "content": [USE]}, user([RESULT])]}),
        ("/v1/messages/count_tokens", {"messages": [user([BLOCK])]}),
        ("/v1/responses", {"input": [user([SHOWN])], "store": False}),
        ("/v1/responses", {"input": [user("hi"), CALL, OUTPUT], "store": False}),
        ("/api/chat", {"messages": [user("see", images=[TEXT])], "stream": False}),
        ("/api/generate", {"prompt": "see", "images": [TEXT], "stream": False}),
    ],
)
def test_every_dialect_knows_an_old_picture(
    host: ModelHost, http: httpx.Client, seen: list[Conversation], path: str, fields: dict[str, Any]
) -> None:
    num_before = host.pictures.num_decoded
    for _ in range(2):
        post(http, path, fields)
    new, old = (conversation.pictures[marker(SHOT)] for conversation in seen)
    assert [conversation.messages for conversation in seen] == [seen[0].messages] * 2
    assert (isinstance(new.file, str), isinstance(old.file, KnownFile)) == (True, True)
    assert (old.digest, old.data) == (new.digest, SHOT)
    assert host.pictures.num_decoded == num_before + 1


def test_a_text_that_equals_a_known_picture_is_a_text(http: httpx.Client, seen: list[Conversation]) -> None:
    arguments = {"name": "look", "arguments": {"url": URL}}
    called = {"role": "assistant", "content": "", "tool_calls": [{"function": arguments}]}
    post(http, "/v1/chat/completions", {"messages": [user([PICTURE])]})
    answer = http.post("/v1/chat/completions", json={"messages": [user([PICTURE]), called, user("see")]})
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert seen[-1].messages[1]["tool_calls"][0]["function"]["arguments"]["url"] == URL
    assert isinstance(seen[-1].pictures[marker(SHOT)].file, str)


def test_a_stored_response_has_its_pictures(http: httpx.Client, seen: list[Conversation]) -> None:
    for _ in range(2):
        first = post(http, "/v1/responses", {"input": [user([SHOWN])]})
    post(http, "/v1/responses", {"input": "and?", "previous_response_id": first["id"]})
    assert seen[-1].pictures[marker(SHOT)].data == SHOT


def test_errors_tell_of_the_body_as_it_came(http: httpx.Client, seen: list[Conversation]) -> None:
    post(http, "/v1/chat/completions", {"messages": [user([PICTURE])]})
    whole = json.dumps({"messages": [user([PICTURE])]})[:-1]
    answer = http.post("/v1/chat/completions", content=whole)
    assert (answer.status_code, len(seen)) == (400, 1)
    small = http.post("/v1/chat/completions", content=json.dumps({"messages": [user("hi")]})[:-1])
    assert answer.json() == small.json()
