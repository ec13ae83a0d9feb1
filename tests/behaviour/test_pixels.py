"""Pictures go with their requests: their pixels, and their files, at once and not when Python collects its garbage."""

import base64
import gc
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.picture import Picture
from leftoff.server.server import serving
from tests.behaviour.bodies import picture_routes
from tests.factory.projectors import projector_path
from tests.patience import PATIENCE_S, until
from tests.pictures import noise
from tests.server.fixtures import settings

SIDE = 96
PIXEL_BYTES = 3 * SIDE * SIDE
NUM_ROUTES = len(picture_routes(""))
CHAT = "/v1/chat/completions"
WRONG_SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nonsense"}}}


@pytest.fixture(scope="module")
def host() -> Iterator[ModelHost]:
    projector = str(projector_path("qwen3vl_merger", 64))
    with open_host(settings(mmproj=projector, alias=("local",), max_tokens=4, queue=1, slots=1)) as host:
        yield host


@pytest.fixture(scope="module")
def url(host: ModelHost) -> Iterator[str]:
    with serving(host) as url:
        yield url


@pytest.fixture(autouse=True)
def _uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def ask(url: str, path: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{url}{path}", json={"model": "local", **body}, timeout=PATIENCE_S)


def chat(*numbers: int, **fields: object) -> dict[str, Any]:
    urls = [f"data:image/png;base64,{base64.b64encode(noise(number, SIDE)).decode()}" for number in numbers]
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return {"messages": [{"role": "user", "content": [*parts, {"type": "text", "text": "look"}]}], **fields}


def are_gone(host: ModelHost) -> bool:
    """A response may be read before the server has ended its part."""
    return until(lambda: not num_pictures(host)) and not host.pictures.held_bytes


def num_pictures(host: ModelHost) -> int:
    return sum(isinstance(each, Picture) and each.taken_by is host.pictures for each in gc.get_objects())


@contextmanager
def busy_projector(host: ModelHost) -> Iterator[None]:
    gate = threading.Event()
    assert host.prompts.encoder is not None
    host.prompts.encoder._thread.submit(gate.wait, PATIENCE_S)
    try:
        yield
    finally:
        gate.set()


@contextmanager
def asked(host: ModelHost, url: str, number: int) -> Iterator[None]:
    """A client that has a slot, and leaves without a word at the end of the block."""
    data, address = json.dumps(chat(number)).encode(), urlsplit(url)
    with socket.create_connection((str(address.hostname), address.port or 0), timeout=PATIENCE_S) as connection:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Length: {len(data)}\r\n\r\n"
        connection.sendall(head.encode() + data)
        assert until(lambda: host.call(lambda: len(host.scheduler.runs)).result())
        yield


@pytest.mark.parametrize("index", range(NUM_ROUTES))
def test_of_a_request_that_was_answered(host: ModelHost, url: str, index: int) -> None:
    path, body = picture_routes(base64.b64encode(noise(index, SIDE)).decode())[index]
    assert ask(url, path, body).status_code == 200
    assert are_gone(host)
    num_decoded = host.pictures.num_decoded
    assert ask(url, path, {**body, "stream": True}).status_code == 200
    assert are_gone(host)
    assert host.pictures.num_decoded == num_decoded, "what makes it cheap is remembered"


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": WRONG_SCHEMA},
        {"tools": [{"type": "function", "function": {}}]},
        {"messages": [*chat(100)["messages"], {"role": "user", "content": "word " * 5000}]},
        {"messages": [*chat(101)["messages"], *chat(102)["messages"], {"role": "nobody", "content": [1]}]},
        {"n": 1000},
    ],
)
def test_of_a_request_that_was_refused(host: ModelHost, url: str, fields: dict[str, Any]) -> None:
    assert ask(url, CHAT, chat(103) | fields).status_code == 400
    assert are_gone(host)


def test_of_a_request_whose_other_picture_is_broken(host: ModelHost, url: str) -> None:
    body = chat(110, 111)
    broken = body["messages"][0]["content"][1]["image_url"]
    broken["url"] = broken["url"][:-400]
    assert "image 2 of message 1 cannot be decoded" in ask(url, CHAT, body).text
    assert are_gone(host)


def test_of_a_client_that_left(host: ModelHost, url: str) -> None:
    with busy_projector(host):
        with asked(host, url, 120):
            assert host.pictures.held_bytes == PIXEL_BYTES
        assert until(lambda: not host.pictures.held_bytes)
    assert are_gone(host)


def test_of_a_request_that_found_the_queue_full(host: ModelHost, url: str) -> None:
    other = threading.Thread(target=ask, args=(url, CHAT, chat(131)))
    with busy_projector(host), asked(host, url, 130):
        other.start()
        assert until(lambda: host.scheduler.num_waiting == 1)
        assert ask(url, CHAT, chat(132)).status_code == 503
        assert until(lambda: host.pictures.held_bytes == 2 * PIXEL_BYTES), "those of the two that wait"
    other.join()
    assert are_gone(host)


def test_of_a_conversation_whose_last_turn_is_remembered(host: ModelHost, url: str) -> None:
    said = [{"role": "assistant", "content": "I see."}, {"role": "user", "content": "And now?"}]
    assert ask(url, CHAT, {"messages": [*chat(140)["messages"], *said]}).status_code == 200
    assert are_gone(host)
