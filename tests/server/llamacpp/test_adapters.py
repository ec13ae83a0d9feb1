"""Adapters over HTTP: chosen by model or by scale, listed in every dialect, and apart in the cache."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from leftoff.host.build import open_host
from leftoff.server.server import serving
from tests.behaviour.adapters import adapter_files
from tests.factory import model_path
from tests.patience import PATIENCE_S
from tests.server.fixtures import settings

FILES = adapter_files(model_path("qwen35"))
STORY = "the river runs down from the hill " * 12
KEYS = ("one", "two")
SAID = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with open_host(settings(lora=(FILES["a"], FILES["b"], FILES["d"]), read_ahead=False)) as host, serving(host) as url:
        yield url


@pytest.fixture
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=PATIENCE_S) as http:
        http.delete("/cache").raise_for_status()
        yield http


def complete(http: httpx.Client, **fields: Any) -> Any:  # noqa: ANN401
    body = {"prompt": STORY, "n_predict": 8, "temperature": 0, "return_tokens": True, "ignore_eos": True}
    return http.post("/completion", json=body | fields).raise_for_status().json()


def test_each_adapter_replies_otherwise_and_reads_for_itself(http: httpx.Client) -> None:
    asked: list[dict[str, Any]] = [
        {},
        {"model": "tiny:a"},
        {"model": "tiny:b"},
        {"lora": [{"id": 0, "scale": 0.5}]},
        {"lora": [{"id": 0}, {"id": 1}]},
    ]
    first, again = ([complete(http, **fields) for fields in asked] for _ in range(2))
    assert all(each["timings"]["cache_n"] == 0 for each in first)
    assert len({tuple(each["tokens"]) for each in first}) == 5
    assert [each["tokens"] for each in again] == [each["tokens"] for each in first]
    assert all(each["timings"]["cache_n"] > 0 for each in again)
    same = complete(http, lora=[{"id": 0, "scale": 1.0}])
    assert same["tokens"] == first[1]["tokens"]
    assert same["timings"]["cache_n"] > 0  # the same set by another way


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"max_tokens": 4}),
        ("/v1/messages", {"max_tokens": 4}),
        ("/api/chat", {"stream": False, "options": {"num_predict": 4}}),
    ],
)
def test_every_dialect_chooses_by_the_name_of_the_model(http: httpx.Client, path: str, body: dict[str, Any]) -> None:
    said = {"messages": [{"role": "user", "content": STORY}]}
    for model in ("tiny", "tiny:a"):
        http.post(path, json=body | said | {"model": model}).raise_for_status()
    records = http.get("/cache/requests?n=2").json()["requests"]
    assert [record["reused"] for record in records] == [0, 0]
    namespaces = [tree["namespace"] for tree in http.get("/cache").json()["trees"]]
    assert sum("/lora:" in namespace for namespace in namespaces) == 1


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": SAID, "max_tokens": 2}),
        ("/v1/completions", {"prompt": "hi", "max_tokens": 2}),
        ("/v1/messages", {"messages": SAID, "max_tokens": 2}),
        ("/v1/responses", {"input": "hi", "max_output_tokens": 16}),
        ("/api/chat", {"messages": SAID, "options": {"num_predict": 2}}),
        ("/api/generate", {"prompt": "hi", "options": {"num_predict": 2}}),
        ("/completion", {"prompt": "hi", "n_predict": 2}),
    ],
)
def test_every_dialect_names_the_model_with_the_adapter_that_was_asked_for(
    http: httpx.Client, path: str, body: dict[str, Any], *, stream: bool
) -> None:
    base = "tiny:latest" if path.startswith("/api/") else "tiny"
    for model, named in (("tiny", base), ("tiny:a", "tiny:a")):
        reply = http.post(path, json=body | {"model": model, "stream": stream}).raise_for_status()
        assert {*re.findall(r'"model":"([^"]*)"', reply.text)} == {named}


@pytest.mark.parametrize(
    ("lora", "named"),
    [([{"id": 0, "scale": 0.5}], "tiny:a"), ([{"id": 0, "scale": 0}, {"id": 1}], "tiny"), ([], "tiny")],
)
def test_an_adapter_that_is_turned_off_by_its_scale_is_not_named(http: httpx.Client, lora: Any, named: str) -> None:  # noqa: ANN401
    assert complete(http, model="tiny:a", lora=lora)["model"] == named
    body = {"model": "tiny:a", "prompt": "hi", "stream": False, "options": {"lora": lora, "num_predict": 2}}
    assert http.post("/api/generate", json=body).json()["model"].removesuffix(":latest") == named


def test_the_responses_api_chooses_too(http: httpx.Client) -> None:
    body = {"model": "tiny:b", "input": STORY, "max_output_tokens": 4}
    http.post("/v1/responses", json=body).raise_for_status()
    assert all("/lora:" in tree["namespace"] for tree in http.get("/cache").json()["trees"])


def test_adapters_are_listed_as_models(http: httpx.Client) -> None:
    names = ["tiny", "tiny:a", "tiny:b", "tiny:d"]
    assert [card["id"] for card in http.get("/v1/models").json()["data"]] == names
    assert [model["name"] for model in http.get("/api/tags").json()["models"]] == ["tiny:latest", *names[1:]]
    assert http.get("/v1/models/tiny:a").json()["id"] == "tiny:a"
    assert http.post("/api/show", json={"model": "tiny:a"}).status_code == 200
    said = {"model": "tiny:a", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    assert http.post("/v1/chat/completions", json=said).json()["model"] == "tiny:a"


def test_llama_servers_list_of_adapters(http: httpx.Client) -> None:
    listed = http.get("/lora-adapters").json()
    assert [(each["id"], each["name"], each["scale"]) for each in listed] == [(0, "a", 0), (1, "b", 0), (2, "d", 0)]
    assert listed[0]["path"] == FILES["a"].partition("=")[2]
    assert listed[2]["alora_invocation_tokens"] == [40, 41, 42, 43, 44]
    base, named = complete(http), complete(http, model="tiny:b")
    assert http.post("/lora-adapters", json=[{"id": 1, "scale": 1.0}]).json() == {"success": True}
    try:
        assert complete(http)["tokens"] == named["tokens"]
        assert complete(http, lora=[])["tokens"] == base["tokens"]
    finally:
        http.post("/lora-adapters", json=[]).raise_for_status()
    assert complete(http)["tokens"] == base["tokens"]


@pytest.mark.parametrize(
    ("fields", "status", "problem"),
    [
        ({"lora": [{"id": 7}]}, 400, "no adapter 7"),
        ({"lora": [{"id": 0, "scale": 1e9}]}, 400, "scale"),
        ({"lora": [{"id": 0}, {"id": 2}]}, 400, "acts alone"),
        ({"lora": {"id": 0}}, 400, "lora"),
        ({"model": "tiny:typo"}, 404, "typo"),
        ({"model": "tiny:typo", "lora": []}, 404, "typo"),
    ],
)
def test_what_is_wrong_is_told(http: httpx.Client, fields: dict[str, Any], status: int, problem: str) -> None:
    answer = http.post("/completion", json={"prompt": "x", "n_predict": 1} | fields)
    assert answer.status_code == status
    assert problem in answer.json()["error"]["message"]


def test_a_header_is_prewarmed_with_the_adapter_that_the_query_names(http: httpx.Client) -> None:
    header = [{"role": "system", "content": STORY}]
    http.post("/cache/prewarm?model=tiny:a", json={"messages": header}).raise_for_status()
    body = {"model": "tiny:a", "messages": [*header, *SAID], "max_tokens": 1}
    usage = http.post("/v1/chat/completions", json=body).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] > 0


def test_ollamas_clients_load_no_adapter_that_is_not_there(http: httpx.Client) -> None:
    answer = http.post("/api/chat", json={"model": "tiny:typo"})
    assert answer.status_code == 404
    assert "tiny has no adapter 'typo'" in answer.json()["error"]


def test_what_is_deleted_by_salt_is_deleted_of_all_adapters(http: httpx.Client) -> None:
    for model in ("tiny", "tiny:a"):
        complete(http, model=model, cache_salt="mine")
        complete(http, model=model)
    assert len(http.get("/cache").json()["trees"]) == 4
    http.delete("/cache?salt=mine").raise_for_status()
    assert len(http.get("/cache").json()["trees"]) == 2
    assert complete(http, model="tiny:a", cache_salt="mine")["timings"]["cache_n"] == 0


def test_no_key_changes_what_another_gets() -> None:
    with (
        open_host(settings(lora=(FILES["a"],), api_key=KEYS)) as host,
        serving(host) as url,
        httpx.Client(base_url=url, timeout=PATIENCE_S, headers={"Authorization": "Bearer one"}) as http,
    ):
        assert http.post("/lora-adapters", json=[{"id": 0}]).status_code == 403
        complete(http, model="tiny:a")
        other = http.get("/cache", headers={"Authorization": "Bearer two"}).json()
        assert other["trees"] == []
