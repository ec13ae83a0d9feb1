"""Answers of several models: one that is named answers alone, all others are put together and say whose they are."""

from collections.abc import Iterator
from threading import Event
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from leftoff.config import MIB
from leftoff.host.late_host import LateHost
from tests.patience import PATIENCE_S, until
from tests.server.test_hosts import RAM_MIB, SAID, ask, served

MODELS = ("llama", "qwen35")


@pytest.fixture(scope="module")
def several() -> Iterator[tuple[httpx.Client, list[LateHost]]]:
    """Two models that were asked, of which one sleeps, and one that nobody has asked."""
    with served(*MODELS, "gemma3", most=1, read_ahead=False) as (url, models):
        for model in MODELS:
            ask(url, model, f"{model} {SAID}")
        with httpx.Client(base_url=url, timeout=PATIENCE_S) as http:
            yield http, models


Several = tuple[httpx.Client, list[LateHost]]


def samples(http: httpx.Client, path: str = "/metrics") -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(http.get(path).text)
    return {(each.name, *sorted(each.labels.values())): each.value for family in families for each in family.samples}


def test_the_cache_is_that_of_all(several: Several) -> None:
    http, _ = several
    whole = http.get("/cache").json()
    own = {model: http.get("/cache", params={"model": model}).json() for model in MODELS}
    assert [tree["model"] for tree in whole["trees"]] == [*MODELS]
    assert [slot["model"] for slot in whole["slots"]] == ["llama"] * 4 + ["qwen35"] * 4
    (ram,) = whole["tiers"]
    assert ram["used_bytes"] == sum(own[model]["tiers"][0]["used_bytes"] for model in MODELS) > 0
    assert ram["budget_bytes"] == own["llama"]["tiers"][0]["budget_bytes"] == RAM_MIB * MIB, "they share it"
    assert whole["context_tokens"] == 2 * 4096
    for model in MODELS:
        assert whole["models"][model] == {
            key: value for key, value in own[model].items() if key not in ("slots", "trees")
        }
        assert not any("model" in item for item in (own[model], *own[model]["slots"], *own[model]["trees"]))
    assert [slot["model"] for slot in http.get("/slots").json()] == ["llama"] * 4 + ["qwen35"] * 4
    assert "model" not in http.get("/slots?model=qwen35").json()[0]


def test_to_look_at_a_model_does_not_load_it(several: Several) -> None:
    http, models = several
    for path in ("/cache", "/cache/tree", "/slots", "/metrics", "/cache/requests", "/cache/events", "/cache/learned"):
        refused = http.get(path, params={"model": "gemma3"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "model_not_loaded"), path
        assert http.get(path, params={"model": "gpt-9"}).status_code == 404, path
        if path != "/cache/events":
            http.get(path).raise_for_status()
            http.get(path, params={"model": "llama"}).raise_for_status()
    assert [model.status for model in models] == ["sleeping", "loaded", "unloaded"]


def test_requests_name_their_model(several: Several) -> None:
    http, _ = several
    assert {record["model"] for record in http.get("/cache/requests?n=256").json()["requests"]} >= {*MODELS}
    (record,) = http.get("/cache/requests?model=llama&n=1").json()["requests"]
    assert record["model"] == "llama"


def test_metrics_have_the_model_as_a_label(several: Several) -> None:
    http, _ = several
    whole = samples(http)
    for model in MODELS:
        own = samples(http, f"/metrics?model={model}")
        assert own["llamacpp:prompt_tokens_total",] > 0
        assert own["llamacpp:prompt_tokens_total",] == whole["llamacpp:prompt_tokens_total", model]
        assert own["leftoff_cache_bytes", "RAM"] == whole["leftoff_cache_bytes", *sorted(("RAM", model))]
    assert ("llamacpp:prompt_tokens_total",) not in whole
    assert whole["leftoff_cache_budget_bytes", "RAM"] == RAM_MIB * MIB
    http.post("/v1/completions", json={"model": "gpt-9"})
    assert samples(http)["leftoff_refused_requests_total", "404"] > 0, "it was refused before any model was asked"


def nodes(http: httpx.Client, model: str) -> list[dict[str, Any]]:
    trees = [tree for tree in http.get("/cache/tree").json()["trees"] if tree["model"] == model]
    return [node for tree in trees for node in tree["nodes"]]


def test_a_path_is_pinned_and_dropped_in_the_model_that_holds_it(several: Several) -> None:
    http, _ = several
    for model, other in (MODELS, MODELS[::-1]):
        node = next(each for each in nodes(http, model) if each["points"])
        assert http.post(f"/cache/tree/{node['id']}/pin", params={"model": other}).status_code == 404
        assert http.post(f"/cache/tree/{node['id']}/pin").json()["bytes"] > 0
        assert any(point["is_pinned"] for each in nodes(http, model) for point in each["points"])
        assert http.delete(f"/cache/tree/{node['id']}/pin").json()["bytes"] > 0
        before = len(nodes(http, other))
        assert http.delete(f"/cache/tree/{node['id']}").json()["freed_bytes"] > 0
        assert not any(each["id"] == node["id"] for each in nodes(http, model))
        assert len(nodes(http, other)) == before
        ask(str(http.base_url), model, f"{model} {SAID}")


def test_what_one_model_has_is_deleted_alone(several: Several) -> None:
    http, _ = several
    assert http.delete("/cache?model=llama").json()["freed_bytes"] > 0
    assert [tree["model"] for tree in http.get("/cache").json()["trees"]] == ["qwen35"]
    assert not http.get("/cache/requests?model=llama").json()["requests"]
    assert http.get("/cache/requests?model=qwen35").json()["requests"]
    ask(str(http.base_url), "llama", f"llama {SAID}")


def test_nobody_who_looks_waits_for_a_model_that_is_being_loaded(several: Several) -> None:
    http, models = several
    ask(str(http.base_url), "qwen35", f"qwen35 {SAID}")
    sleeping = models[0].open()
    may_go_on = Event()
    assert until(lambda: sleeping.status == "sleeping")
    sleeping.call(may_go_on.wait)  # as its thread is while it loads
    sleeping.scheduler.waking.load()
    assert sleeping.status == "loading", "by hand"
    with httpx.Client(base_url=http.base_url, timeout=PATIENCE_S) as other:
        body = {"model": "llama", "prompt": SAID, "max_tokens": 1, "stream": True}
        with other.stream("POST", "/v1/completions", json=body) as reply:
            assert until(lambda: sleeping.status == "loading")
            cards = http.get("/v1/models").json()["data"]
            assert [card["status"]["value"] for card in cards] == ["loading", "loaded", "unloaded"]
            assert [*http.get("/cache").json()["models"]] == ["qwen35"]
            may_go_on.set()
            reply.read()
    assert [*http.get("/cache").json()["models"]] == [*MODELS]
