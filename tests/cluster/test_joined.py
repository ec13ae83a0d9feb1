"""A router over two models: what concerns all replicas is asked of all, and no model answers for another."""

from collections.abc import Iterator

import httpx
import pytest

from tests.cluster.here import Part, replica, router
from tests.cluster.test_proxy import chat, known
from tests.factory import model_path
from tests.patience import PATIENCE_S, until

KEY = {"authorization": "Bearer one"}


@pytest.fixture(scope="module")
def replicas() -> Iterator[list[Part]]:
    flags = ("--api-key", "one,two", "--alias")
    parts = [replica(*flags, name, models=[str(model_path("qwen35"))]) for name in ("small", "large")]
    yield parts
    for part in parts:
        part.close()


@pytest.fixture(scope="module")
def route(replicas: list[Part]) -> Iterator[Part]:
    part = router(replicas=[each.url for each in replicas])
    assert until(lambda: len(known(part, KEY)) == 2)
    yield part
    part.close()


@pytest.fixture
def http(route: Part) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=route.url, headers=KEY, timeout=PATIENCE_S) as client:
        yield client


def ask(http: httpx.Client, model: str | None) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
    return http.post("/v1/chat/completions", json=body | ({"model": model} if model else {}))


def held(url: str, key: dict[str, str] = KEY) -> int:
    tiers = httpx.get(f"{url}/cache", headers=key, timeout=PATIENCE_S).json()["tiers"]
    return int(tiers[0]["entries"])


def test_the_model_that_is_named_answers(http: httpx.Client, replicas: list[Part]) -> None:
    for name, process in zip(("small", "large"), replicas, strict=True):
        for _ in range(2):
            answer = ask(http, name)
            assert (answer.json()["model"], answer.headers["x-leftoff-replica"]) == (name, process.url)
    named = http.post("/api/chat", json={"model": "large:latest", "messages": [], "stream": False})
    assert named.headers["x-leftoff-replica"] == replicas[1].url
    for unknown in ("other", None):
        refused = ask(http, unknown)
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
        assert "name one of large, small" in refused.json()["error"]["message"]


def test_lists_are_those_of_all(http: httpx.Client, replicas: list[Part]) -> None:
    urls = {process.url for process in replicas}
    assert {each["id"] for each in http.get("/v1/models").json()["data"]} == {"small", "large"}
    assert {each["name"] for each in http.get("/api/tags").json()["models"]} == {"small:latest", "large:latest"}
    assert {each["name"] for each in http.get("/api/ps").json()["models"]} == {"small:latest", "large:latest"}
    assert {each["replica"] for each in http.get("/slots").json()} == urls
    props = http.get("/props").json()
    assert {each["model_alias"] for each in props["replicas"].values()} == {"small", "large"}
    assert props["total_slots"] == 4
    assert {*http.get("/cache").json()["replicas"]} == urls


def test_a_request_for_one_replica_is_answered_by_it(http: httpx.Client, replicas: list[Part]) -> None:
    chosen = {"x-leftoff-replica": replicas[1].url}
    assert http.get("/props", headers=chosen).json()["model_alias"] == "large"
    assert "tiers" in http.get("/cache", headers=chosen).json()


def test_a_wrong_key_is_refused_as_by_a_replica(http: httpx.Client) -> None:
    for path in ("/v1/models", "/cache"):
        assert http.get(path, headers={"authorization": "Bearer three"}).status_code == 401
    assert http.delete("/cache", headers={"authorization": "Bearer three"}).status_code == 401


def test_what_is_deleted_is_deleted_everywhere(http: httpx.Client, replicas: list[Part]) -> None:
    other = {"authorization": "Bearer two"}
    for name, process in zip(("small", "large"), replicas, strict=True):
        for key in (KEY, other):
            chat(process.url, "Delete me", model=name, headers=key)
        assert until(lambda process=process: held(process.url) and held(process.url, other))  # type: ignore[misc]
    told = http.delete("/cache").json()
    assert {*told["replicas"]} == {process.url for process in replicas}
    assert told["entries"] == sum(each["entries"] for each in told["replicas"].values()) > 1
    assert [held(process.url) for process in replicas] == [0, 0]
    assert all(held(process.url, other) for process in replicas), "what is another tenant's stays"


def test_a_browser_finds_the_replicas_at_the_root(http: httpx.Client, replicas: list[Part]) -> None:
    shown = http.get("/", headers={"accept": "text/html"})
    assert shown.headers["content-type"].startswith("text/html")
    assert all(f'<a href="{process.url}">' in shown.text for process in replicas)
    assert http.get("/").text.startswith("leftoff route is running")


def test_a_response_is_found_wherever_it_is_kept(http: httpx.Client, replicas: list[Part]) -> None:
    """Another router has made it: this one does not know where."""
    made = {}
    for process, name in zip(replicas, ("small", "large"), strict=True):
        body = {"model": name, "input": "My name is Ada.", "max_output_tokens": 16}
        answer = httpx.post(f"{process.url}/v1/responses", json=body, headers=KEY, timeout=PATIENCE_S)
        made[answer.json()["id"]] = name
    for response, name in made.items():
        assert http.get(f"/v1/responses/{response}").json()["model"] == name
    missing = http.get("/v1/responses/resp_none")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "previous_response_not_found")


def test_a_model_whose_replicas_are_gone_is_not_answered_by_another(
    http: httpx.Client, route: Part, replicas: list[Part]
) -> None:
    kept = http.post("/v1/responses", json={"model": "large", "input": "Hello", "max_output_tokens": 16}).json()["id"]
    replicas[1].close()
    failed = http.delete("/cache")
    assert failed.status_code in (200, 502), "it may be known to be gone already"
    if failed.status_code == 502:
        assert "error" in failed.json()["replicas"][replicas[1].url]
    assert until(lambda: len(known(route, KEY)) == 1)
    refused = ask(http, "large")
    assert refused.status_code == 503
    assert "no replica of 'large' can be reached" in refused.json()["error"]["message"]
    assert ask(http, "small").json()["model"] == "small"
    assert until(lambda: "which is gone" in http.get(f"/v1/responses/{kept}").json()["error"]["message"])
