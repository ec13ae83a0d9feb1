"""The cache and the metrics, seen from outside."""

import json
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from leftoff.host.host import ModelHost
from leftoff.server.request.raw_prompts import RawPrompts

SYSTEM = {"role": "system", "content": "an old man keeps a lamp in his window " * 10}


def chat(http: httpx.Client, content: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401
    messages = [SYSTEM, {"role": "user", "content": content}]
    body = {"messages": messages, "max_tokens": 4, "temperature": 0} | fields
    reply: dict[str, Any] = http.post("/v1/chat/completions", json=body).json()
    return reply


def test_the_tree_shows_what_is_kept(http: httpx.Client, host: ModelHost) -> None:
    chat(http, "where does the road end")
    chat(http, "only a map")
    chat(http, "only a map")
    chat(http, "only a map", cache_salt="other")
    view = http.get("/cache").json()
    (tier,) = view["tiers"]
    assert 0 < tier["used_bytes"] <= tier["budget_bytes"] == 64 << 20
    assert view["memory"] == "hybrid"
    assert len(view["slots"]) == 4
    tree, other = view["trees"]
    assert tree["namespace"] != other["namespace"]
    assert tree["bytes"] + other["bytes"] == tier["used_bytes"]
    assert tree["entries"] + other["entries"] == tier["entries"]
    root = next(node for node in tree["nodes"] if node["parent"] is None)
    assert root["text"].startswith("<|im_start|>system\nan old man")
    branches = [node for node in tree["nodes"] if node["parent"] == root["id"]]
    assert sorted(node["text"].split()[0] for node in branches) == ["only", "where"]
    assert all(node["start"] == root["end"] for node in branches)
    entries = [entry for node in tree["nodes"] for entry in node["entries"]]
    assert all(entry["bytes"] > 0 and entry["age_s"] >= 0 for entry in entries)
    assert sum(entry["hits"] for entry in entries) >= 1
    host.call(host.cache.check_integrity).result()


def test_the_cache_is_emptied(http: httpx.Client) -> None:
    chat(http, "where does the road end")
    used_bytes = http.get("/cache").json()["tiers"][0]["used_bytes"]
    assert http.delete("/cache").json()["freed_bytes"] >= used_bytes > 0  # more is saved while nobody asks
    view = http.get("/cache").json()
    assert (view["tiers"][0]["used_bytes"], view["trees"]) == (0, [])
    assert chat(http, "where does the road end")["timings"]["cache_n"] == 0


def test_long_lists_of_token_ids_are_deleted_of_a_salt_and_of_all(http: httpx.Client, host: ModelHost) -> None:
    lists = RawPrompts.of(host).id_lists
    for salt in ("mine", "other"):
        body = {"prompt": [500] * 3500, "n_predict": 0, "cache_salt": salt}
        http.post("/completion", content=json.dumps(body)).raise_for_status()
    both = lists.num_bytes
    http.delete("/cache?salt=mine").raise_for_status()
    assert 0 < lists.num_bytes < both
    http.delete("/cache").raise_for_status()
    assert lists.num_bytes == 0


def test_reports_tell_the_first_difference(http: httpx.Client) -> None:
    rest = "and who keeps a lamp in the window of the old house under the hill"
    first = chat(http, f"where does the road end {rest}")
    second = chat(http, f"where does the river end {rest}")
    newest, oldest = http.get("/cache/requests").json()["requests"]
    assert (oldest["id"], newest["id"]) == (first["id"], second["id"])
    assert (oldest["reused"], oldest["reasons"]) == (0, {"new": oldest["prompt_tokens"]})
    assert newest["reused"] == second["timings"]["cache_n"]
    assert sum(newest["reasons"].values()) == newest["computed"] == second["timings"]["prompt_n"]
    assert newest["before"].startswith(" road")
    assert newest["after"].startswith(" river")
    assert (newest["difference"], "edited" in newest["reasons"]) == ("edited", True)
    assert newest["line"].startswith(f"reused {newest['reused']} of {newest['prompt_tokens']}")
    assert len(http.get("/cache/requests?n=1").json()["requests"]) == 1
    assert http.get("/cache/requests?n=many").json()["error"]["param"] == "n"


def test_clients_are_told_by_name_with_what_they_were_spared(http: httpx.Client) -> None:
    for words in ("where does the road end", "where does the road end", "only a map"):
        chat(http, words)
    reports = http.get("/cache/requests").json()["requests"]
    (client,) = [each for each in http.get("/cache/clients").json()["clients"] if each["client"] == "python-httpx"]
    assert [(each["title"], each["requests"]) for each in client["latest"]] == [
        ("only a map", 1),
        ("where does the road end", 2),
    ]
    assert client["latest"][1]["reused"] == sum(report["reused"] for report in reports[1:])
    assert len(http.get("/cache/clients?n=1").json()["clients"][0]["latest"]) == 1
    http.delete("/cache")
    assert all(each["latest"] == [] for each in http.get("/cache/clients").json()["clients"])


def test_prompts_that_only_begin_alike_do_not_differ(http: httpx.Client) -> None:
    for words in ("where does the road end", "where does the river end"):
        chat(http, words)
    newest = http.get("/cache/requests").json()["requests"][0]
    assert (newest["difference"], newest["differs_at"], newest["before"]) == (None, None, "")
    assert "edited" not in newest["reasons"]


def test_a_refused_request_is_told_with_its_reason(http: httpx.Client) -> None:
    refused = samples(http).get("leftoff_refused_requests_total[400]", 0)
    http.post("/v1/chat/completions", json={"messages": "hello"})
    http.post("/v1/messages", content=b"{")
    messages, chat = http.get("/cache/requests").json()["requests"]
    assert chat["line"] == f"POST /v1/chat/completions refused with 400: {chat['error']}"
    assert chat["error"].startswith("messages: must be a list")
    assert (messages["finish"], messages["status"], messages["prompt_tokens"]) == ("refused", 400, 0)
    assert samples(http)["leftoff_refused_requests_total[400]"] == refused + 2


def samples(http: httpx.Client) -> dict[str, float]:
    """By name and labels."""
    reply = http.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain")
    families = text_string_to_metric_families(reply.text)
    return {
        sample.name + "".join(f"[{value}]" for value in sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


def test_the_metrics_count_what_was_done(http: httpx.Client) -> None:
    before = samples(http)
    replies = [chat(http, "where does the road end"), chat(http, "where does the road end")]
    after = samples(http)

    def rise(name: str) -> float:
        return after[name] - before.get(name, 0)

    assert rise("llamacpp:prompt_tokens_total") == sum(reply["timings"]["prompt_n"] for reply in replies)
    assert rise("llamacpp:tokens_predicted_total") == 8
    reused = sum(reply["timings"]["cache_n"] for reply in replies)
    assert rise("leftoff_reused_tokens_total") == rise("llamacpp:prompt_tokens_cached_total") == reused
    assert rise("leftoff_computed_tokens_total[new]") == replies[0]["timings"]["prompt_n"]
    assert rise("leftoff_requests_total[length]") == 2
    assert rise("leftoff_time_to_first_token_seconds_count") == 2
    assert rise("leftoff_time_to_first_token_seconds_bucket[+Inf]") == 2
    view = http.get("/cache").json()
    assert after["leftoff_cache_bytes[RAM]"] == view["tiers"][0]["used_bytes"]
    assert after["leftoff_cache_budget_bytes[RAM]"] == view["tiers"][0]["budget_bytes"]
    assert after["leftoff_cache_entries[RAM]"] == view["tiers"][0]["entries"]
    assert after["llamacpp:requests_processing"] == after["llamacpp:requests_deferred"] == 0
    assert after["llamacpp:prompt_tokens_seconds"] > 0
    assert after["llamacpp:predicted_tokens_seconds"] > 0


def test_the_description_knows_every_route(http: httpx.Client) -> None:
    description = http.get("/openapi.json").json()
    assert {"/v1/chat/completions", "/completion", "/cache", "/metrics", "/v1/models/{id}"} <= description[
        "paths"
    ].keys()
    schema = description["components"]["schemas"]["ChatRequest"]
    assert {"messages", "temperature", "cache_salt"} <= schema["properties"].keys()
    assert schema["required"] == ["messages"]
