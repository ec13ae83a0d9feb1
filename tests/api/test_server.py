"""Where the server listens, and how it ends."""

import threading
import time
from contextlib import closing

import httpx
import pytest

from leftoff.api.server import Server, run, serving
from leftoff.api.service import Service
from tests.api.conftest import settings
from tests.patience import PATIENCE_S


def test_a_free_port_is_found_and_known(service: Service) -> None:
    with serving(service) as first, serving(service) as second:
        assert first != second
        assert httpx.get(f"{first}/health").status_code == httpx.get(f"{second}/health").status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{first}/health")


def test_a_port_that_is_taken_is_named(service: Service) -> None:
    with serving(service) as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(OSError, match=f"127.0.0.1:{port}.*--port"):
            Server(service, settings(port=port))


def test_replies_are_sent_without_delay(service: Service) -> None:
    """A kernel that waits for more to send adds 40 ms to most requests."""
    with serving(service) as url, httpx.Client(base_url=url) as http:
        began = time.perf_counter()
        for _ in range(20):
            http.get("/health")
        assert time.perf_counter() - began < 20 * 0.04


def test_it_runs_until_it_is_stopped(service: Service) -> None:
    """As the command line runs it, but in a thread."""
    with closing(Server(service, settings(port=0))) as server:
        thread = threading.Thread(target=server.run)
        thread.start()
        assert httpx.get(f"{server.url}/health").status_code == 200
        server.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_the_url_is_told_as_soon_as_it_listens(service: Service) -> None:
    told: list[str] = []

    class StopError(Exception):
        """Ends the run before it begins."""

    def on_ready(url: str) -> None:
        told.append(url)
        raise StopError

    with pytest.raises(StopError):
        run(service, settings(port=0), on_ready)
    assert told[0].startswith("http://127.0.0.1:")
    assert not told[0].endswith(":0")
