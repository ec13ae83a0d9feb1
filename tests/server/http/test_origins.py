"""Web pages of other origins: what they ask is refused, unless the settings name them."""

from collections.abc import Iterator

import httpx
import pytest

from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.server.server import serving
from tests.server.fixtures import settings

FRIEND, STRANGER = "https://chat.example", "https://evil.example"
CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "the old bridge"}], "max_tokens": 1}
CONTENT = httpx.Request("POST", "/", json=BODY).content
BEARER = {"Authorization": "Bearer key"}
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
FOREIGN = (
    {"Origin": STRANGER},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "http://localhost:1"},
    {"Origin": "http://localhost.evil.example"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Origin": STRANGER, "Sec-Fetch-Site": "same-origin"},
)
TYPES = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/json")


@pytest.fixture(scope="module")
def host() -> Iterator[ModelHost]:
    """One that allows an origin, and asks for a key."""
    with open_host(settings(api_key=("key",), cors=(FRIEND,))) as host:
        yield host


@pytest.mark.parametrize("page", FOREIGN, ids=str)
def test_a_foreign_page_is_refused_everywhere(http: httpx.Client, page: dict[str, str]) -> None:
    for kind in TYPES:
        headers = BEARER | page | {"Content-Type": kind}
        assert http.post(CHAT, content=CONTENT, headers=headers).status_code == 403
    for method, path in (("GET", "/cache"), ("GET", "/cache/requests"), ("DELETE", "/cache"), ("GET", "/slots")):
        assert http.request(method, path, headers=BEARER | page).status_code == 403
    for method, path in (("GET", "/"), ("HEAD", "/"), ("GET", "/no-such-route"), ("POST", "/api/chat")):
        assert http.request(method, path, headers=BEARER | page).status_code == 403
    assert http.options(CHAT, headers=PREFLIGHT | page).status_code == 403
    for path in ("/health", "/v1/health"):
        assert http.get(path, headers=page).status_code == 200
    assert http.get("/cache/requests", headers=BEARER).json()["requests"] == [], "nothing ran"


def test_the_refusal_names_the_origin_and_the_flag(http: httpx.Client) -> None:
    reply = http.post(CHAT, json=BODY, headers=BEARER | {"Origin": STRANGER})
    error = reply.json()["error"]
    assert error["message"].endswith(f"start the server with --cors {STRANGER}")
    assert (error["code"], error["type"]) == ("foreign_origin", "permission_error")
    assert "'null'" in http.get("/cache", headers=BEARER | {"Origin": "null"}).json()["error"]["message"]
    unnamed = http.get("/cache", headers=BEARER | {"Sec-Fetch-Site": "cross-site"}).json()["error"]["message"]
    assert "Sec-Fetch-Site: cross-site" in unnamed
    assert "--cors" in unnamed


def test_a_client_that_is_no_browser_is_served_whatever_it_sends(http: httpx.Client) -> None:
    for kind in TYPES:
        assert http.post(CHAT, content=CONTENT, headers=BEARER | {"Content-Type": kind}).status_code == 200
    assert http.get("/cache", headers=BEARER).status_code == 200


def test_a_page_of_this_server_is_served(http: httpx.Client, url: str) -> None:
    port = url.rpartition(":")[2]
    own = {"Origin": url, "Sec-Fetch-Site": "same-origin"}
    assert http.post(CHAT, json=BODY, headers=BEARER | own).status_code == 200
    assert http.get("/cache", headers=BEARER | {"Sec-Fetch-Site": "none"}).status_code == 200, "typed by the user"
    for host, origin, status in (
        (f"localhost:{port}", f"http://LOCALHOST:{port}", 200),
        ("localhost", "http://localhost:80", 200),
        ("localhost", "https://localhost", 200),  # behind a proxy that adds TLS
        (f"localhost:{port}", f"http://127.0.0.1:{port}", 403),  # may be another program's
        (f"localhost:{port}", "http://localhost", 403),
        ("localhost", "file://localhost", 403),
    ):
        assert http.get("/cache", headers=BEARER | {"Host": host, "Origin": origin}).status_code == status, origin
    redirected = {"Origin": url, "Sec-Fetch-Site": "cross-site"}
    assert http.post(CHAT, json=BODY, headers=BEARER | redirected).status_code == 403


def test_a_link_to_the_start_page_may_be_followed(http: httpx.Client) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert http.get("/", headers=link).status_code == 200
    assert http.get("/", headers=link | {"Sec-Fetch-Dest": "iframe"}).status_code == 403
    assert http.get("/cache", headers=BEARER | link).status_code == 403
    assert http.post("/", headers=link | {"Origin": STRANGER}).status_code == 403


def test_a_named_origin_is_served_and_told_so(http: httpx.Client) -> None:
    page = {"Origin": FRIEND, "Sec-Fetch-Site": "cross-site"}
    leave = http.options(CHAT, headers=PREFLIGHT | page | {"Access-Control-Request-Private-Network": "true"})
    assert (leave.status_code, leave.headers["access-control-allow-origin"]) == (200, FRIEND)
    reply = http.post(CHAT, json=BODY, headers=BEARER | page)
    assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (200, FRIEND)
    refusal = http.post(CHAT, json=BODY, headers=page)
    assert (refusal.status_code, refusal.headers["access-control-allow-origin"]) == (401, FRIEND), "it may read why"
    for headers in (page | {"Origin": STRANGER}, page | {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        reply = http.options(CHAT, headers=PREFLIGHT | headers)
        assert reply.status_code == 403
        assert not [name for name in reply.headers if name.startswith("access-control")]


def test_all_origins_may_be_allowed() -> None:
    with open_host(settings(cors=("*",))) as host, serving(host) as url:
        for page in FOREIGN:
            assert httpx.post(url + CHAT, json=BODY, headers=page).status_code == 200
        assert httpx.options(url + CHAT, headers=PREFLIGHT | {"Origin": STRANGER}).status_code == 200


def test_by_default_no_origin_is_allowed_and_a_slash_at_its_end_does_not_matter() -> None:
    with open_host(settings()) as host, serving(host) as url:
        reply = httpx.options(url + CHAT, headers=PREFLIGHT | {"Origin": FRIEND})
        assert reply.status_code == 403
        assert not [name for name in reply.headers if name.startswith("access-control")]
    with open_host(settings(cors=(f"{FRIEND}/",))) as host, serving(host) as url:
        assert httpx.options(url + CHAT, headers=PREFLIGHT | {"Origin": FRIEND}).status_code == 200
