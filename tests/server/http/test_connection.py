"""Connections that are slow, idle or too many cost the others nothing; honest slow ones are served."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import httpx
import pytest

from leftoff.host.host import ModelHost
from leftoff.server.server import serving
from tests.patience import PATIENCE_S, until
from tests.server.clock import Clock
from tests.server.fixtures import settings
from tests.server.raw import ask, connected, head, read_to_end, read_until

HALF_A_HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
QUESTION = {"prompt": "the sea", "max_tokens": 20}
HEALTH = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def test_half_a_head_is_given_up(own_url: str, clock: Clock) -> None:
    with connected(own_url) as connection:
        connection.sendall(HALF_A_HEAD)
        for _ in range(3):  # what comes in between does not help
            clock.forward(3)
            connection.sendall(b"a")
        clock.forward(3)
        assert b" 408 " in read_to_end(connection)


def test_a_head_that_takes_a_while_is_answered(own_url: str, clock: Clock) -> None:
    with connected(own_url) as connection:
        connection.sendall(HEALTH[:20])
        clock.forward(9)
        connection.sendall(HEALTH[20:])
        assert b" 200 " in read_until(connection, b"}")
        clock.forward(4)
        connection.sendall(HEALTH[:20])  # the next head has a time of its own
        clock.forward(9)
        connection.sendall(HEALTH[20:])
        assert b" 200 " in read_until(connection, b"}")
        connection.sendall(b"\r\n")  # may stand before a request, but not for ever
        clock.forward(11)
        assert b" 408 " in read_to_end(connection)


@pytest.mark.parametrize("has_asked", [True, False])
def test_an_idle_connection_is_closed(own_url: str, clock: Clock, has_asked: bool) -> None:
    with connected(own_url) as connection:
        if has_asked:
            connection.sendall(HEALTH)
            read_until(connection, b"}")
        clock.forward(11)
        assert read_to_end(connection) == b""


def test_a_head_has_a_largest_size(own_url: str) -> None:
    with connected(own_url) as connection:
        connection.sendall(HALF_A_HEAD + b"a" * (64 << 10))
        assert b" 431 " in read_to_end(connection)


def test_a_body_that_trickles_is_given_up(own_url: str, clock: Clock) -> None:
    with connected(own_url) as connection:
        connection.sendall(head("/tokenize", 1000) + b"{")
        clock.forward(1)
        for _ in range(3):
            connection.sendall(b" ")
            clock.forward(11)
        assert b" 408 " in read_to_end(connection)


def test_a_slow_upload_arrives(own_url: str, clock: Clock) -> None:
    """Over a line of some 550 bytes a second, for minutes."""
    body = json.dumps(QUESTION).encode() + b" " * 60_000
    with connected(own_url) as connection:
        connection.sendall(head("/v1/completions", len(body)))
        for begin in range(0, len(body), 16_000):
            connection.sendall(body[begin : begin + 16_000])
            clock.forward(29)
        assert b" 200 " in read_until(connection, b"}")


def limited(monkeypatch: pytest.MonkeyPatch, num_connections: int) -> None:
    own = settings()
    monkeypatch.setattr("leftoff.server.http.connection._BEYOND_QUEUE", num_connections - own.queue - own.slots)
    monkeypatch.setattr("leftoff.server.http.connection._MIN_CONNECTIONS", 1)


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


@contextmanager
def engine_held(host: ModelHost) -> Iterator[None]:
    """No request gets on for the length of the block."""
    is_over = threading.Event()
    held = host.call(is_over.wait)
    try:
        yield
    finally:
        is_over.set()
        held.result()


def test_a_request_that_waits_is_not_hurried(host: ModelHost, own_url: str, clock: Clock) -> None:
    with connected(own_url) as connection:
        with engine_held(host):
            ask(connection, "/v1/completions", QUESTION)
            assert until(lambda: host.scheduler.num_waiting == 1)
            clock.forward(3600)
        assert b" 200 " in read_until(connection, b"}")


def test_who_has_not_asked_makes_way(host: ModelHost, monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, 4)
    with serving(host) as url, ExitStack() as stack:
        asking = stack.enter_context(connected(url))
        with engine_held(host):
            ask(asking, "/v1/completions", QUESTION)
            assert until(lambda: host.scheduler.num_waiting == 1)
            others = [stack.enter_context(connected(url)) for _ in range(20)]
            for other in others:
                other.sendall(HALF_A_HEAD)
            assert httpx.get(f"{url}/health", timeout=PATIENCE_S).status_code == 200
            assert until(lambda: sum(map(is_open, others)) <= 3)
        assert b" 200 " in read_until(asking, b"}")


def test_streams_without_an_end_make_way(host: ModelHost, monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, 4)
    with serving(host) as url, ExitStack() as stack:
        watching = [stack.enter_context(connected(url)) for _ in range(4)]
        for each in watching:
            each.sendall(HEALTH.replace(b"/health", b"/cache/events"))
            read_until(each, b"}}\n\n\r\n")  # the first state, as a chunk
        assert httpx.get(f"{url}/health", timeout=PATIENCE_S).status_code == 200


def test_others_wait_while_all_are_being_answered(host: ModelHost, monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, 2)
    with serving(host) as url, connected(url) as first, connected(url) as second, ExitStack() as stack:
        with engine_held(host):
            for connection in (first, second):
                ask(connection, "/v1/completions", QUESTION)
            assert until(lambda: host.scheduler.num_waiting == 2)
            third = stack.enter_context(connected(url))
            third.sendall(HEALTH)
            third.settimeout(0.5)
            with pytest.raises(TimeoutError):
                third.recv(1)
        third.settimeout(PATIENCE_S)
        assert b" 200 " in read_until(third, b"}")


def test_large_requests_have_a_limit_together(host: ModelHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leftoff.server.http.middleware._BYTES_OF_ALL", 2_500_000)
    monkeypatch.setattr(host, "settings", replace(host.settings, max_body=1))
    body = json.dumps(QUESTION).encode() + b" " * 1_000_000
    with serving(host) as url, connected(url) as first, connected(url) as second:
        with engine_held(host):
            for connection in (first, second):
                connection.sendall(head("/v1/completions", len(body)) + body)
            assert until(lambda: host.scheduler.num_waiting == 2)
            refused = httpx.post(f"{url}/v1/completions", content=body, timeout=PATIENCE_S)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "too_much_at_once")
            assert int(refused.headers["retry-after"]) > 0
        for connection in (first, second):
            assert b" 200 " in read_until(connection, b"}")
        assert httpx.post(f"{url}/v1/completions", content=body, timeout=PATIENCE_S).status_code == 200


def test_who_asks_for_another_protocol_is_answered_in_this_one(url: str) -> None:
    """As Java's HttpClient does, with every request that has a body."""
    wish = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
    data = json.dumps(QUESTION).encode()
    first, rest = head("/v1/completions", len(data)).split(b"\r\n", 1)
    for start in (b"", b"\r\n"):
        with connected(url) as connection:
            connection.sendall(start + first + b"\r\n" + wish + rest + data)
            assert b'"text_completion"' in read_until(connection, b"}")


def test_pipelined_requests_are_left_to_another_connection(url: str) -> None:
    body = json.dumps(QUESTION).encode()
    with connected(url) as connection:
        connection.sendall(head("/v1/completions", len(body)) + body + 1000 * HEALTH)
        assert read_to_end(connection).count(b"HTTP/1.1 200") == 1


@pytest.mark.usefixtures("http")
def test_who_pipelines_and_leaves_is_noticed(host: ModelHost, url: str) -> None:
    body = json.dumps({"prompt": "the sea", "max_tokens": 4000, "stream": True, "ignore_eos": True}).encode()
    with connected(url) as connection:
        connection.sendall(head("/v1/completions", len(body)) + body + HEALTH)
        assert until(lambda: bool(host.scheduler.runs))
    assert until(lambda: [record.finish for record in host.log.records] == ["cancelled"])
