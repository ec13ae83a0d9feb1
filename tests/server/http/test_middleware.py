"""API keys, tenants and body limits: who may ask, and how much."""

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from leftoff.config import MIB
from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.server.server import serving
from tests.server.fixtures import settings

KEYS = ("first-key", "second-key")
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "the old bridge " * 20}], "max_tokens": 1}
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def host() -> Iterator[ModelHost]:
    with open_host(settings(api_key=KEYS, max_body=1)) as host:
        yield host


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def cached(reply: httpx.Response) -> int:
    assert reply.status_code == 200, reply.text
    number: int = reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return number


@pytest.mark.parametrize("headers", [{}, bearer("wrong"), bearer("first-ke"), {"x-api-key": "wrong"}])
def test_without_a_known_key_nothing_is_told(http: httpx.Client, headers: dict[str, str]) -> None:
    asked = [http.get(path, headers=headers) for path in ("/cache", "/page/scenes")]
    for reply in (http.post(CHAT, json=BODY, headers=headers), *asked):
        assert reply.status_code == 401
        assert reply.json()["error"]["code"] == "invalid_api_key"
    assert http.get("/health", headers=headers).status_code == 200


@pytest.mark.parametrize("key", KEYS)
def test_a_known_key_passes(http: httpx.Client, key: str, url: str) -> None:
    assert http.post(CHAT, json=BODY, headers=bearer(key)).status_code == 200
    assert http.post(CHAT, json=BODY, headers={"x-api-key": key}).status_code == 200
    with openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client:
        assert client.models.list().data[0].id == "tiny"
    stranger = openai.OpenAI(base_url=f"{url}/v1", api_key="wrong", max_retries=0)
    with stranger, pytest.raises(openai.AuthenticationError):
        stranger.models.list()


def test_a_wrong_key_beside_a_right_one_does_no_harm(http: httpx.Client) -> None:
    right, wrong = KEYS[0], "left-over"
    for headers in ({**bearer(wrong), "x-api-key": right}, {**bearer(right), "x-api-key": wrong}):
        assert http.post(CHAT, json=BODY, headers=headers).status_code == 200
    assert http.post(CHAT, json=BODY, headers={**bearer(wrong), "x-api-key": wrong}).status_code == 401
    assert cached(http.post(CHAT, json=BODY, headers={**bearer(wrong), "x-api-key": right})) > 0, "the same tenant"


def test_who_knocks_is_told_what_is_here(http: httpx.Client) -> None:
    reply = http.get("/")
    assert (reply.status_code, reply.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert reply.text.startswith("leftoff")
    assert reply.text.count("\n") == 1
    assert "/v1" in reply.text
    assert "/health" in reply.text
    knock = http.head("/")
    assert (knock.status_code, knock.content) == (200, b"")


def test_tenants_share_nothing(http: httpx.Client) -> None:
    first, second = bearer(KEYS[0]), bearer(KEYS[1])
    assert cached(http.post(CHAT, json=BODY, headers=first)) == 0
    assert cached(http.post(CHAT, json=BODY, headers=second)) == 0
    assert cached(http.post(CHAT, json=BODY | {"cache_salt": "a"}, headers=first)) == 0
    assert cached(http.post(CHAT, json=BODY | {"cache_salt": "b"}, headers=first)) == 0
    assert cached(http.post(CHAT, json=BODY, headers=first | {"x-cache-salt": "c"})) == 0
    for fields, headers in (({}, first), ({}, second), ({"cache_salt": "a"}, first)):
        assert cached(http.post(CHAT, json=BODY | fields, headers=headers)) > 0
    assert cached(http.post(CHAT, json=BODY, headers=first | {"x-cache-salt": "a"})) > 0, "the same salt, as a header"


def test_a_tenant_reads_no_words_of_another(http: httpx.Client) -> None:
    secret = BODY | {"messages": [{"role": "user", "content": "the secret map"}]}
    http.post(CHAT, json=secret, headers=bearer(KEYS[0]))
    http.post(CHAT, json=BODY, headers=bearer(KEYS[1]))
    for path in ("/cache", "/cache/requests", "/slots"):
        assert "secret" not in http.get(path, headers=bearer(KEYS[1])).text
    own = http.get("/cache", headers=bearer(KEYS[0])).text
    assert "secret" in own
    assert "bridge" not in own
    assert len(http.get("/cache/requests", headers=bearer(KEYS[0])).json()["requests"]) == 1
    report = http.get("/cache/requests", headers=bearer(KEYS[1])).json()["requests"][0]
    assert report["reasons"].keys() == {"new"}


def test_without_keys_all_clients_are_one_tenant() -> None:
    """Tools send whatever their authors came up with: none, DUMMY_KEY, sk-1234."""
    with open_host(settings()) as host, serving(host) as url, httpx.Client(base_url=url) as http:
        first = http.post(CHAT, json=BODY, headers=bearer("none"))
        assert cached(first) == 0
        for headers in ({}, bearer("DUMMY_KEY"), {"x-api-key": "sk-1234"}, bearer("none")):
            assert cached(http.post(CHAT, json=BODY, headers=headers)) > 0
            assert len(http.get("/cache", headers=headers).json()["trees"]) == 1
        assert cached(http.post(CHAT, json=BODY | {"cache_salt": "a"})) == 0, "salts are kept apart all the same"


def chunked(num_bytes: int) -> Iterator[bytes]:
    for _ in range(0, num_bytes, 1 << 16):
        yield b" " * (1 << 16)


@pytest.mark.parametrize("num_bytes", [MIB + 1, 50 * MIB])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_beyond_the_limit(http: httpx.Client, num_bytes: int, is_chunked: bool) -> None:
    content = chunked(num_bytes + MIB) if is_chunked else b" " * num_bytes
    reply = http.post(CHAT, content=content, headers=bearer(KEYS[0]))
    assert reply.status_code == 413
    assert "1 MiB" in reply.json()["error"]["message"]
    assert http.post(CHAT, json=BODY, headers=bearer(KEYS[0])).status_code == 200


def test_a_body_at_the_limit(http: httpx.Client) -> None:
    reply = http.post(CHAT, content=b" " * MIB, headers=bearer(KEYS[0]))
    assert reply.json()["error"]["code"] == "invalid_json"
