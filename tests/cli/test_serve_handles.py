"""`leftoff serve` with too few file handles: it backs off, says so once, and is there again as soon as it can."""

import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.cli.running import Server, serving
from tests.patience import PATIENCE_S, until
from tests.server.raw import connected, read_to_end, read_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of other processes are Linux's")

HALF_A_HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
HEALTH = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
WARNING = "cannot take new connections"
MAX_LOG_BYTES = 10_000


def handles(server: Server) -> set[int]:
    return {int(handle.name) for handle in Path(f"/proc/{server.process.pid}/fd").iterdir()}


def await_rest(server: Server) -> None:
    """It has opened what it needs, and nothing else."""
    with connected(server.url) as connection:
        connection.sendall(HEALTH)
        read_until(connection, b"}")
        num_used = len(handles(server))
    assert until(lambda: len(handles(server)) < num_used)


@contextmanager
def no_handles_left(server: Server) -> Iterator[None]:
    pid, used = server.process.pid, handles(server)
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    lowest_free = min({*range(len(used) + 1)} - used)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest_free, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def cpu_seconds(server: Server) -> float:
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_half_sent_requests_do_not_take_all_handles() -> None:
    with serving(max_handles=64) as server, ExitStack() as stack:
        for _ in range(94):
            stack.enter_context(connected(server.url)).sendall(HALF_A_HEAD)
        began, cpu_began = time.monotonic(), cpu_seconds(server)
        for _ in range(10):
            assert httpx.get(f"{server.url}/health", timeout=PATIENCE_S).status_code == 200
        while time.monotonic() < began + 1:  # of which a server that goes round and round computes most
            time.sleep(0.1)
        assert cpu_seconds(server) - cpu_began < 0.5 * (time.monotonic() - began)
        assert len(server.log) < MAX_LOG_BYTES


def test_it_is_there_again_as_soon_as_handles_are() -> None:
    with serving("--disk", "0") as server, ExitStack() as stack:
        await_rest(server)
        with no_handles_left(server):
            waiting = stack.enter_context(connected(server.url))
            waiting.sendall(HEALTH)
            waiting.settimeout(0.5)
            with pytest.raises(TimeoutError):
                waiting.recv(1)
        waiting.settimeout(PATIENCE_S)
        assert b" 200 " in read_until(waiting, b"}")
        assert server.log.count(WARNING) == 1
        assert len(server.log) < MAX_LOG_BYTES


def test_who_has_not_asked_makes_way() -> None:
    with serving("--disk", "0") as server:
        await_rest(server)
        own = handles(server)
        with connected(server.url) as half_open:
            half_open.sendall(HALF_A_HEAD)
            assert until(lambda: handles(server) > own)
            with no_handles_left(server):
                assert httpx.get(f"{server.url}/health", timeout=PATIENCE_S).status_code == 200
                assert read_to_end(half_open) == b""
        assert server.log.count(WARNING) == 1
