"""Where the server listens, and how it ends."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import httpx
import pytest

from leftoff.host.host import ModelHost
from leftoff.server.hosts import Hosts
from leftoff.server.server import Server, address_towards, run, serving
from leftoff.setting import is_loopback
from tests.patience import PATIENCE_S
from tests.server.fixtures import settings


@contextmanager
def running(host: ModelHost, advertise: str = "") -> Iterator[Server]:
    with closing(Server(Hosts(host), settings(port=0, advertise=advertise))) as server:
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.stop()
            thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_a_free_port_is_found_and_known(host: ModelHost) -> None:
    with serving(host) as first, serving(host) as second:
        assert first != second
        assert httpx.get(f"{first}/health").status_code == httpx.get(f"{second}/health").status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{first}/health")


def test_a_port_that_is_taken_is_named(host: ModelHost) -> None:
    with serving(host) as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(OSError, match=f"127.0.0.1, port {port} .*--port"):
            Server(Hosts(host), settings(port=port))


def test_replies_are_sent_without_delay(host: ModelHost) -> None:
    """A kernel that waits for more to send adds 40 ms to most requests."""
    with running(host) as server, httpx.Client(base_url=server.url) as http:
        http.get("/health")
        (connection,) = server.server_state.connections
        assert connection.transport is not None
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_it_runs_until_it_is_stopped(host: ModelHost) -> None:
    """As the command line runs it, but in a thread."""
    with running(host) as server:
        assert httpx.get(f"{server.url}/health").status_code == 200


def test_the_url_is_told_as_soon_as_it_listens(host: ModelHost) -> None:
    told: list[str] = []

    class StopError(Exception):
        """Ends the run before it begins."""

    def on_ready(url: str) -> None:
        told.append(url)
        raise StopError

    with pytest.raises(StopError):
        run(Hosts(host), settings(port=0), on_ready)
    assert told[0].startswith("http://127.0.0.1:")
    assert not told[0].endswith(":0")


def test_other_machines_are_told_an_address_that_leads_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of machines are often known to none but themselves."""
    monkeypatch.setattr(socket, "gethostname", lambda: "own-name")
    assert address_towards("redis://127.0.0.1:6379/0") == "own-name"
    assert address_towards("redis://no-such-host.invalid:6379/0") == "own-name"
    address = address_towards("redis://192.0.2.1:6379/0")  # nothing is sent there
    assert address == "own-name" or not is_loopback(address)


def test_the_name_that_is_advertised_is_answered_to(host: ModelHost) -> None:
    for advertise, status in (("", 403), ("http://box.example:8080", 200)):
        with running(host, advertise) as server:
            asked = httpx.get(f"{server.url}/v1/models", headers={"host": "box.example:8080"}, timeout=PATIENCE_S)
            assert asked.status_code == status
