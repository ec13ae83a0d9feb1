"""DNS rebinding: the server answers only under names and addresses it is known by."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import httpx
import pytest

from leftoff.host.host import ModelHost
from leftoff.server.hosts import Hosts
from leftoff.server.http.origins import KnownHosts
from leftoff.server.server import Server, serving
from tests.server.fixtures import settings

PATIENCE_S = 60.0
STRANGERS = (
    "evil.com",
    "evil.com:8080",
    "localhost.evil.com",
    "127.0.0.1.evil.com",
    "localhost@evil.com",
    "evil.com#localhost",
    "",
)


def status(http: httpx.Client, method: str, path: str, address: str) -> int:
    return http.request(method, path, headers={"Host": address}).status_code


def raw(url: str, head: str) -> str:
    """The status line that a request without any client's help gets."""
    address, port = url.removeprefix("http://").split(":")
    with socket.create_connection((address, int(port)), timeout=PATIENCE_S) as connection:
        connection.sendall(head.replace("\n", "\r\n").encode() + b"Connection: close\r\n\r\n")
        return connection.makefile("rb").readline().decode().split(" ", 1)[1].strip()


@contextmanager
def listening(served: ModelHost, **changes: Any) -> Iterator[httpx.Client]:  # noqa: ANN401
    with closing(Server(Hosts(served), settings(port=0, **changes))) as server:
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
                yield http
        finally:
            server.stop()
            thread.join()


@pytest.mark.parametrize("address", STRANGERS)
def test_a_foreign_host_is_refused_everywhere(http: httpx.Client, address: str) -> None:
    body = {"prompt": "the road", "max_tokens": 1}
    assert http.post("/v1/completions", json=body).status_code == 200
    kept = http.get("/cache").json()["trees"]
    for method, path in (("GET", "/cache"), ("GET", "/cache/requests"), ("DELETE", "/cache"), ("GET", "/slots")):
        assert status(http, method, path, address) == 403
    assert http.post("/v1/completions", json=body, headers={"Host": address}).status_code == 403
    for path in ("/", "/health", "/metrics", "/no-such-route"):
        assert status(http, "GET", path, address) == 403
    assert [tree["tokens"] for tree in http.get("/cache").json()["trees"]] == [tree["tokens"] for tree in kept]


def test_the_refusal_names_the_host_and_the_flag(http: httpx.Client) -> None:
    error = http.get("/cache", headers={"Host": "evil.com:8080"}).json()["error"]
    assert "'evil.com:8080'" in error["message"]
    assert error["message"].endswith("--allowed-host evil.com")
    assert (error["code"], error["type"]) == ("unknown_host", "permission_error")
    assert "--allowed-host" in http.get("/api/tags", headers={"Host": "evil.com"}).json()["error"], "Ollama's shape"


def test_this_machine_is_known_with_any_port(http: httpx.Client, url: str) -> None:
    port = url.rpartition(":")[2]
    for name in ("localhost", "LocalHost", "localhost.", "127.0.0.1", "[::1]", "[0:0:0:0:0:0:0:1]"):
        for address in (name, f"{name}:{port}", f"{name}:80", f"{name}:"):
            assert status(http, "GET", "/cache", address) == 200, address


def test_on_loopback_the_addresses_of_others_are_foreign(http: httpx.Client) -> None:
    for address in ("192.168.7.9", "0.0.0.0", "[fd00::1]", socket.gethostname() + ".example", "host.docker.internal"):
        assert status(http, "GET", "/cache", address) == 403, address


def test_a_server_for_the_network_is_reached_by_address_and_by_the_name_of_the_machine(host: ModelHost) -> None:
    with listening(host, host="0.0.0.0") as http:
        own = socket.gethostname()
        for address in (
            "localhost",
            "192.168.7.9:8080",
            "[fd00::1]:8080",
            "[fe80::1%eth0]",
            own,
            own.upper(),
            f"{own}:8080",
        ):
            assert status(http, "GET", "/cache", address) == 200, address
        assert status(http, "GET", "/cache", "host.docker.internal:8080") == 200
        for address in STRANGERS:
            assert status(http, "GET", "/cache", address) == 403, address


def test_more_names_may_be_allowed(host: ModelHost) -> None:
    with listening(host, allowed_host=("chat.example", "Other.Example:80", "[fd00::1]")) as http:
        for address in ("chat.example", "CHAT.example:8080", "other.example", "[fd00:0::1]:8080", "localhost"):
            assert status(http, "GET", "/cache", address) == 200, address
        for address in (*STRANGERS, "sub.chat.example", "example"):
            assert status(http, "GET", "/cache", address) == 403, address
    with listening(host, allowed_host=("*",)) as http:
        assert status(http, "GET", "/cache", "evil.com") == 200


def test_the_name_it_was_told_to_listen_on_is_known() -> None:
    hosts = KnownHosts.of("Lamp.example", "127.0.1.1")
    assert hosts.knows("lamp.example:8080")
    assert hosts.knows("127.0.1.1")
    assert not hosts.knows("192.168.7.9")


def test_who_sends_no_host_speaks_an_old_protocol(url: str) -> None:
    """No browser leaves it out. HTTP/1.1 demands it, and forbids two."""
    assert raw(url, "GET /cache HTTP/1.0\n") == "200 OK"
    assert raw(url, "GET /cache HTTP/1.0\nHost: evil.com\n") == "403 Forbidden"
    assert raw(url, "GET /cache HTTP/1.1\n") == "400 Bad Request"
    assert raw(url, "GET /cache HTTP/1.1\nHost: localhost\nHost: evil.com\n") == "400 Bad Request"


def test_the_host_in_the_target_counts(url: str) -> None:
    assert raw(url, "GET http://evil.com/cache HTTP/1.1\nHost: localhost\n") == "403 Forbidden"
    assert raw(url, "GET http://evil.com:80/cache HTTP/1.1\nHost: evil.com\n") == "403 Forbidden"
    assert raw(url, "GET http://evil.com/cache HTTP/1.0\n") == "403 Forbidden"
    assert raw(url, "GET http://localhost/cache HTTP/1.1\nHost: evil.com\n") == "200 OK"
    assert raw(url, "GET http://[::1]:8080/cache HTTP/1.1\nHost: localhost\n") == "200 OK"


def test_a_server_in_a_thread_is_found_by_its_own_url(host: ModelHost) -> None:
    with serving(host) as url:
        assert httpx.get(f"{url}/cache").status_code == 200
