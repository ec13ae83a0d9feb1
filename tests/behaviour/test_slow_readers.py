"""A client that does not read its stream holds no slot: its reply is buffered, and cancelled beyond a limit."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.server.server import serving
from tests.patience import PATIENCE_S, until
from tests.server.clock import Clock
from tests.server.fixtures import settings
from tests.server.raw import ask, connected, read_to_end, read_until

NUM_TOKENS = 30_000
LITTLE = 4096  # bytes that each kernel buffers, about


@pytest.fixture(scope="module")
def host() -> Iterator[ModelHost]:
    with open_host(settings(ctx=1 << 15)) as host:
        yield host


@pytest.fixture(autouse=True)
def buffers(host: ModelHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ones: the tests are to be quick."""
    host.log.forget()
    monkeypatch.setattr("leftoff.server.http.connection._SEND_BUFFER_BYTES", LITTLE)
    monkeypatch.setattr("leftoff.server.http.connection._UNREAD_BYTES", 256 << 10)


def ask_for(connection: socket.socket, num_tokens: int) -> None:
    """Some 2 KB per token."""
    told = {"messages": [{"role": "user", "content": "the sea"}], "temperature": 0, "ignore_eos": True}
    wanted = {"max_tokens": num_tokens, "stream": True, "logprobs": True, "top_logprobs": 20}
    ask(connection, "/v1/chat/completions", told | wanted)


def test_six_slow_readers_on_four_slots(host: ModelHost) -> None:
    with serving(host) as url, ExitStack() as stack:
        for _ in range(6):
            ask_for(stack.enter_context(connected(url, LITTLE)), NUM_TOKENS)
        assert until(lambda: len(host.scheduler.runs) + len(host.log.records) >= 4)
        body = {"messages": [{"role": "user", "content": "the hill"}], "max_tokens": 2}
        assert httpx.post(f"{url}/v1/chat/completions", json=body, timeout=PATIENCE_S).status_code == 200
        assert until(lambda: len(host.log.records) == 7)
    slow = [record for record in host.log.records if record.finish == "cancelled"]
    assert len(slow) == 6
    assert all(record.generated < NUM_TOKENS / 10 for record in slow)


def test_while_others_wait_less_is_buffered(host: ModelHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leftoff.server.http.connection._UNREAD_BYTES", 1 << 30)
    with serving(host) as url, ExitStack() as stack:
        for _ in range(4):
            ask_for(stack.enter_context(connected(url, LITTLE)), NUM_TOKENS)
        assert until(lambda: sum(run.timings.num_generated > 200 for run in host.scheduler.runs) == 4)
        assert not host.log.records
        assert httpx.post(f"{url}/completion", json={"prompt": "a", "n_predict": 1}, timeout=PATIENCE_S).is_success
        assert any(record.finish == "cancelled" for record in host.log.records)


def test_a_slow_reader_is_told_at_the_end_of_what_it_gets(host: ModelHost) -> None:
    with serving(host) as url, connected(url, LITTLE) as connection:
        ask_for(connection, NUM_TOKENS)
        assert until(lambda: [record.finish for record in host.log.records] == ["cancelled"])
        last = read_until(connection, b"0\r\n\r\n")[-1000:]
    assert b'"code":"client_too_slow"' in last
    assert b"[DONE]" in last


def test_a_reply_within_the_limit_waits_for_its_reader(host: ModelHost) -> None:
    with serving(host) as url, connected(url, LITTLE) as connection:
        ask_for(connection, 100)
        assert until(lambda: [record.finish for record in host.log.records] == ["length"])
        assert read_until(connection, b"0\r\n\r\n").count(b'"finish_reason":"length"') == 1


def test_what_is_never_read_is_given_up(host: ModelHost, own_url: str, clock: Clock) -> None:
    with connected(own_url, LITTLE) as connection:
        ask_for(connection, 100)
        assert until(lambda: [record.finish for record in host.log.records] == ["length"])
        clock.forward(1)
        clock.forward(31)
        assert b"[DONE]" not in read_to_end(connection)


def test_a_slow_reader_that_leaves_is_noticed(host: ModelHost, own_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, not only when it has read what is buffered for it, or when it should have: the clock stands still."""
    monkeypatch.setattr("leftoff.server.http.connection._UNREAD_BYTES", 1 << 30)
    with connected(own_url, LITTLE) as connection:
        ask_for(connection, NUM_TOKENS)
        assert until(lambda: any(run.timings.num_generated > 100 for run in host.scheduler.runs))
        connection.shutdown(socket.SHUT_WR)
        assert until(lambda: [record.finish for record in host.log.records] == ["cancelled"])
    (record,) = host.log.records
    assert record.generated < NUM_TOKENS / 2
