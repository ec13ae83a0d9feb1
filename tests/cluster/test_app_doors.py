"""The router's doors are those of a server: keys, hosts, origins, bodies and connections."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import httpx
import pytest

from lab.bench.process import Process
from tests.cluster.here import Part, replica
from tests.cluster.processes import router
from tests.factory import model_path
from tests.patience import PATIENCE_S, until

KEY = {"Authorization": "Bearer a-key"}
CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}


@pytest.fixture(scope="module")
def server() -> Iterator[Part]:
    part = replica("--api-key", "a-key", models=[str(model_path("llama"))])
    yield part
    part.close()


@pytest.fixture(scope="module")
def route(server: Part) -> Iterator[Process]:
    """A router that was told of no key, over a server that has one."""
    process = router("--replica", server.url.removeprefix("http://"), "--max-body", "1", "--queue", "1")
    yield process
    process.close()


@pytest.fixture
def http(route: Process) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=route.url, timeout=PATIENCE_S) as client:
        assert until(lambda: client.get("/health").status_code == 200)
        yield client


def test_what_the_router_knows_takes_a_key_of_the_replicas(http: httpx.Client) -> None:
    for path in ("/cluster", "/metrics"):
        assert http.get(path).status_code == 401
        assert http.get(path, headers={"x-api-key": "another"}).status_code == 401
        assert http.get(path, headers=KEY).status_code == 200
    assert http.get("/health").status_code == 200


def test_a_router_may_have_keys_of_its_own(server: Part) -> None:
    process = router("--replica", server.url, "--api-key", "a-key")
    try:
        for path in ("/cluster", "/v1/models"):
            assert httpx.get(process.url + path).json()["error"]["code"] == "invalid_api_key"
            assert httpx.get(process.url + path, headers=KEY).status_code == 200
    finally:
        process.close()


def test_a_foreign_host_is_refused(http: httpx.Client) -> None:
    for method, path in (("GET", "/cluster"), ("GET", "/cache"), ("DELETE", "/cache"), ("GET", "/health")):
        reply = http.request(method, path, headers=KEY | {"Host": "evil.com"})
        assert (reply.status_code, reply.json()["error"]["code"]) == (403, "unknown_host")


def test_a_foreign_page_is_refused_and_one_of_the_router_is_not(http: httpx.Client, route: Process) -> None:
    for foreign in ({"Origin": "https://evil.com"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        reply = http.post("/v1/chat/completions", json=CHAT, headers=KEY | foreign)
        assert (reply.status_code, reply.json()["error"]["code"]) == (403, "foreign_origin")
    own = {"Origin": route.url, "Sec-Fetch-Site": "same-origin"}
    assert http.post("/v1/chat/completions", json=CHAT, headers=KEY | own).status_code == 200


def test_a_body_has_a_largest_size_in_the_words_of_its_dialect(http: httpx.Client) -> None:
    reply = http.post("/v1/messages", content=b"x" * (1 << 20 | 1), headers=KEY)
    assert reply.status_code == 413
    assert reply.json()["type"] == "error"
    reply = http.post("/v1/chat/completions", content=(b"x" * 1000 for _ in range(1200)), headers=KEY)
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, "body_too_large")


def test_half_sent_heads_hold_up_nobody(route: Process) -> None:
    address = ("127.0.0.1", int(route.url.rpartition(":")[2]))
    with ExitStack() as closing:
        waiting = [closing.enter_context(socket.create_connection(address, PATIENCE_S)) for _ in range(200)]
        for connection in waiting:
            with suppress(ConnectionError):
                connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        assert httpx.get(f"{route.url}/health", timeout=PATIENCE_S).status_code == 200
        with suppress(ConnectionResetError):  # the first of them has made way: else this would wait for ever
            waiting[0].recv(1)
