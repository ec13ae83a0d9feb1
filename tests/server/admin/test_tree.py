"""The tree of slots, RAM and disk as one, and pinning and dropping a path of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.server.server import serving
from tests.patience import PATIENCE_S, until
from tests.server.fixtures import settings

SYSTEM = {"role": "system", "content": "an old man keeps a lamp in his window " * 10}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[ModelHost]:
    """With a disk, so that all three sources are there."""
    with open_host(settings(disk=64, cache_dir=str(tmp_path), read_ahead=False, slots=2)) as host:
        yield host


@pytest.fixture
def http(host: ModelHost) -> Iterator[httpx.Client]:
    with serving(host) as url, httpx.Client(base_url=url, timeout=PATIENCE_S) as http:
        yield http


def chat(http: httpx.Client, content: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401
    body = {"messages": [SYSTEM, {"role": "user", "content": content}], "max_tokens": 4, "temperature": 0} | fields
    reply: dict[str, Any] = http.post("/v1/chat/completions", json=body).json()
    return reply


def nodes_of(http: httpx.Client, query: str = "") -> list[dict[str, Any]]:
    (tree,) = http.get("/cache/tree", params={"q": query} if query else {}).json()["trees"]
    nodes: list[dict[str, Any]] = tree["nodes"]
    return nodes


def check(host: ModelHost) -> None:
    host.call(host.cache.check_integrity).result()


def test_the_sources_are_merged_into_one_tree(http: httpx.Client, host: ModelHost) -> None:
    for question in ("where does the road end", "only a map", "only a lamp"):
        chat(http, question)
    assert until(lambda: all(slot["is_saved"] for slot in http.get("/cache").json()["slots"]))
    nodes = nodes_of(http)
    by_id = {node["id"]: node for node in nodes}
    assert len(by_id) == len(nodes)
    for node in nodes:
        parent = by_id.get(node["parent"])
        assert node["start"] == (parent["end"] if parent else 0)
        assert node["ram_tokens"] <= node["end"] - node["start"] >= node["disk_tokens"]
    (root,) = [node for node in nodes if node["parent"] is None]
    assert root["text"].startswith("<|im_start|>system\nan old man")
    assert {number for node in nodes for number in node["slots"]} <= {0, 1}
    tiers = {tier["name"]: tier for tier in http.get("/cache").json()["tiers"]}
    assert sum(node["ram_bytes"] for node in nodes) == pytest.approx(tiers["RAM"]["used_bytes"], rel=0.01)
    points = [point for node in nodes for point in node["points"]]
    assert sum(point["tier"] == "RAM" for point in points) == tiers["RAM"]["entries"]
    assert any(node["disk_bytes"] for node in nodes) == (tiers["disk"]["used_bytes"] > 0)
    check(host)


def test_text_that_spans_nodes_is_found_where_it_ends(http: httpx.Client) -> None:
    ends = ("road", "river", "röhrig", "röst")
    for end in ends:
        chat(http, f"where is the {end} now")
    for end in ends:
        (found,) = [node for node in nodes_of(http, f"where is the {end} now") if node["is_found"]]
        before = next(node for node in nodes_of(http) if node["id"] == found["parent"])
        assert "where is the" not in found["text"], "it begins in a node before"
        assert not before["text"].endswith(f"{end} now")


def test_text_is_found(http: httpx.Client) -> None:
    chat(http, "where does the road end")
    chat(http, "only a map")
    found = [node["text"] for node in nodes_of(http, "THE ROAD") if node["is_found"]]
    assert len(found) == 1
    assert not any(node["is_found"] for node in nodes_of(http))


def test_a_path_is_pinned_and_let_go(http: httpx.Client) -> None:
    chat(http, "only a map")
    node = next(node for node in nodes_of(http) if node["points"])
    pinned = http.post(f"/cache/tree/{node['id']}/pin").json()
    assert pinned["bytes"] > 0
    (again,) = [each for each in nodes_of(http) if each["id"] == node["id"]]
    assert any(point["is_pinned"] for point in again["points"])
    assert http.delete(f"/cache/tree/{node['id']}/pin").status_code == 200
    (again,) = [each for each in nodes_of(http) if each["id"] == node["id"]]
    assert not any(point["is_pinned"] for point in again["points"])


def test_a_branch_is_dropped_and_the_others_stay(http: httpx.Client, host: ModelHost) -> None:
    first = chat(http, "where does the road end")
    chat(http, "only a map")
    branch = next(node for node in nodes_of(http, "the road") if node["is_found"])
    assert branch["start"] > 0
    assert http.delete(f"/cache/tree/{branch['id']}").json()["freed_bytes"] > 0
    check(host)
    assert not any(node["is_found"] for node in nodes_of(http, "the road"))
    again = chat(http, "where does the road end")
    assert first["timings"]["cache_n"] < again["timings"]["cache_n"] <= branch["start"]
    assert chat(http, "only a map")["timings"]["prompt_n"] <= 1
    assert http.delete(f"/cache/tree/{branch['id'][::-1]}").status_code == 404
