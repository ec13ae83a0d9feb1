"""A client that vanishes frees its slot, and what was computed for it stays usable."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from tests.patience import PATIENCE_S, until
from tests.server.fixtures import settings

PROMPT = "a small boat waits under the old bridge " * 8
LONG_REPLY = 15_000  # four of them fit beside each other


@pytest.fixture(scope="module")
def host() -> Iterator[ModelHost]:
    """With room for replies that are still running when the last client has been noticed to leave."""
    with open_host(settings(ctx=1 << 16)) as host:
        yield host


@contextmanager
def asked(url: str, *, stream: bool, prompt: str = PROMPT, num_tokens: int = LONG_REPLY) -> Iterator[socket.socket]:
    """A bare connection on which a long reply was asked for. It is closed without a word at the end of the block."""
    body = json.dumps({"prompt": prompt, "max_tokens": num_tokens, "stream": stream, "temperature": 0}).encode()
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        yield connection


def running(host: ModelHost) -> int:
    """Between two steps."""
    return host.call(lambda: len(host.scheduler.runs)).result()


def await_running(host: ModelHost, wanted: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while running(host) != wanted:
        assert time.monotonic() < deadline, f"{running(host)} requests are still running"


@pytest.mark.parametrize("stream", [True, False])
def test_a_running_reply_ends(host: ModelHost, http: httpx.Client, url: str, stream: bool) -> None:
    with asked(url, stream=stream) as connection:
        await_running(host, 1)
        if stream:
            assert b"200 OK" in connection.recv(1 << 16)
    await_running(host, 0)
    assert until(lambda: host.log.records), "its end is told on the event loop"
    (record,) = host.log.records
    assert record.finish == "cancelled"
    assert record.generated < LONG_REPLY
    reply = http.post("/v1/completions", json={"prompt": PROMPT, "max_tokens": 1}).json()
    assert reply["timings"]["prompt_n"] <= 1
    host.call(host.cache.check_integrity).result()


@pytest.mark.usefixtures("http")
def test_a_prompt_that_is_being_read_ends(host: ModelHost, url: str) -> None:
    with asked(url, stream=True, prompt=PROMPT * 50):
        await_running(host, 1)
    await_running(host, 0)
    host.call(host.cache.check_integrity).result()


@pytest.mark.usefixtures("http")
def test_a_request_that_waits_leaves_the_queue(host: ModelHost, url: str) -> None:
    running_ones = [asked(url, stream=True, prompt=f"{index} {PROMPT}") for index in range(4)]
    connections = [request.__enter__() for request in running_ones]
    try:
        await_running(host, 4)
        with asked(url, stream=False):
            deadline = time.monotonic() + PATIENCE_S
            while host.scheduler.num_waiting == 0:
                assert time.monotonic() < deadline
        while host.scheduler.num_waiting:
            assert time.monotonic() < deadline, "the request is still waiting"
            assert running(host) == 4, "it left because it was closed, not because it had its turn"
    finally:
        for request, _ in zip(running_ones, connections, strict=True):
            request.__exit__(None, None, None)
    await_running(host, 0)


@pytest.mark.usefixtures("http")
def test_one_of_several_replies_that_ended_does_not_matter(host: ModelHost, url: str) -> None:
    body = {"prompt": [PROMPT, "the sea"], "n": 2, "max_tokens": LONG_REPLY, "stream": True}
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=PATIENCE_S) as reply:
        next(reply.iter_lines())
    await_running(host, 0)
    assert {record.finish for record in host.log.records} <= {"cancelled", "length"}
