"""Tenants: what one holder of an API key has, and sees, beside others."""

import json
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from blake3 import blake3
from prometheus_client.parser import text_string_to_metric_families

from leftoff.cli.main import main
from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.server.server import serving
from leftoff.server.tenant import Tenant
from tests.server.fixtures import settings

ONE, TWO = "first-key", "second-key"
CHAT = "/v1/chat/completions"


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def chat(http: httpx.Client, key: str, content: str = "the old bridge " * 40, **fields: Any) -> int:  # noqa: ANN401
    """The tokens that were reused."""
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 2, "temperature": 0} | fields
    reply = http.post(CHAT, json=body, headers=bearer(key))
    assert reply.status_code == 200, reply.text
    number: int = reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return number


def get(http: httpx.Client, path: str, key: str) -> Any:  # noqa: ANN401
    reply = http.get(path, headers=bearer(key))
    assert reply.status_code == 200, reply.text
    return reply.json()


def samples(http: httpx.Client, key: str) -> dict[str, float]:
    """Of the metrics, by name and labels."""
    families = text_string_to_metric_families(http.get("/metrics", headers=bearer(key)).text)
    return {
        sample.name + "".join(f"[{value}]" for value in sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


@pytest.fixture(scope="module")
def host() -> Iterator[ModelHost]:
    with open_host(settings(api_key=(ONE, TWO), slots=2, read_ahead=False)) as host:
        yield host


# --- what is shown


@contextmanager
def running(http: httpx.Client, key: str, **fields: Any) -> Iterator[None]:  # noqa: ANN401
    """While a reply of this tenant is being written."""
    body = {"prompt": "the river runs", "stream": True, "n_predict": 3000, "temperature": 0} | fields
    with http.stream("POST", "/completion", json=body, headers=bearer(key)) as reply:
        lines = reply.iter_lines()  # kept: a stream whose iterator goes is closed
        next(lines)
        yield


def test_the_slot_of_another_shows_that_it_is_busy_and_nothing_else(http: httpx.Client, url: str) -> None:
    with running(http, ONE, stop=["a word that nobody says"]), httpx.Client(base_url=url, timeout=60) as other:
        own, foreign = get(other, "/slots", ONE), get(other, "/slots", TWO)
        views = get(other, "/cache", TWO)["slots"]
        gauges = [samples(other, key)["llamacpp:requests_processing"] for key in (ONE, TWO)]
    (busy,) = [slot for slot in own if slot["is_processing"]]
    assert busy["params"]["stop"] == ["a word that nobody says"]
    assert busy["n_tokens"] > 0
    assert foreign[busy["id"]] == {
        "id": busy["id"],
        "n_ctx": busy["n_ctx"],
        "is_processing": True,
        "speculative": False,
    }
    assert views[busy["id"]] == {"id": busy["id"], "is_busy": True}
    assert gauges == [1, 0]


def test_a_slot_at_rest_tells_another_nothing_of_what_it_holds(http: httpx.Client) -> None:
    chat(http, ONE)
    assert [slot for slot in get(http, "/cache", ONE)["slots"] if slot.get("tokens")]
    for slot in get(http, "/cache", TWO)["slots"]:
        assert slot.keys() == {"id", "is_busy"}
    assert not any("n_tokens" in slot for slot in get(http, "/slots", TWO))


def test_the_cache_shows_a_tenant_its_own_trees_and_bytes(http: httpx.Client, host: ModelHost) -> None:
    chat(http, ONE)
    chat(http, ONE, cache_salt="salt")
    chat(http, TWO, "a small boat " * 10)
    host.call(host.cache.save_idle).result()
    one, two = get(http, "/cache", ONE), get(http, "/cache", TWO)
    assert [len(view["trees"]) for view in (one, two)] == [2, 1]
    assert "bridge" not in str(two)
    assert "boat" not in str(one)
    for view in (one, two):
        (tier,) = view["tiers"]
        assert tier["used_bytes"] == sum(tree["bytes"] for tree in view["trees"]) > 0
        assert tier["entries"] == sum(tree["entries"] for tree in view["trees"]) > 0
        assert "evictions" not in tier
        assert "free_tokens" not in view
    store = host.cache.ram.budget
    assert one["tiers"][0]["used_bytes"] + two["tiers"][0]["used_bytes"] == store.used_bytes


def test_the_metrics_count_what_was_done_for_the_tenant(http: httpx.Client) -> None:
    before = {key: samples(http, key) for key in (ONE, TWO)}
    chat(http, ONE)
    chat(http, ONE)
    chat(http, TWO)
    after = {key: samples(http, key) for key in (ONE, TWO)}

    def rise(key: str, name: str) -> float:
        return after[key][name] - before[key].get(name, 0)

    assert [rise(key, "leftoff_requests_total[length]") for key in (ONE, TWO)] == [2, 1]
    assert [rise(key, "llamacpp:tokens_predicted_total") for key in (ONE, TWO)] == [4, 2]
    assert rise(ONE, "leftoff_reused_tokens_total") > rise(TWO, "leftoff_reused_tokens_total") == 0
    assert [after[key]["leftoff_cache_bytes[RAM]"] > 0 for key in (ONE, TWO)] == [True, True]
    assert not [name for name in after[ONE] if "evictions" in name or "free_tokens" in name]


def test_nobody_is_told_that_another_has_sent_the_same(http: httpx.Client) -> None:
    """Else a tenant could guess what others send, word by word."""
    chat(http, ONE, "the secret map")
    chat(http, TWO, "the secret map")
    chat(http, ONE, "the secret map", cache_salt="salt")
    own, first = get(http, "/cache/requests", ONE)["requests"]
    (foreign,) = get(http, "/cache/requests", TWO)["requests"]
    assert foreign["reasons"] == first["reasons"] == {"new": first["prompt_tokens"]}
    assert foreign["line"] == first["line"]
    assert own["reasons"] == {"other salt": own["prompt_tokens"]}, "what is one's own is told"


# --- what is forgotten


def test_who_empties_the_cache_empties_its_own(http: httpx.Client) -> None:
    chat(http, ONE)
    chat(http, ONE, cache_salt="salt")
    chat(http, TWO)
    assert http.delete("/cache", headers=bearer(TWO)).json()["entries"] > 0
    assert get(http, "/cache", TWO)["trees"] == []
    assert chat(http, ONE) > 0
    assert chat(http, ONE, cache_salt="salt") > 0
    assert chat(http, TWO) == 0


def test_a_response_is_deleted_with_the_rest_of_its_tenant_alone(http: httpx.Client) -> None:
    """It is text of the tenant as all else is; a client that goes on from it is told to send the whole input."""
    body = {"input": "the old bridge", "max_output_tokens": 2}
    responses = {key: http.post("/v1/responses", json=body, headers=bearer(key)).json()["id"] for key in (ONE, TWO)}
    assert http.delete("/cache", headers=bearer(ONE)).status_code == 200
    assert http.get(f"/v1/responses/{responses[ONE]}", headers=bearer(ONE)).status_code == 404
    assert get(http, f"/v1/responses/{responses[TWO]}", TWO)["id"] == responses[TWO]


# --- names


def namespaces_on_disk(root: Path) -> set[str]:
    (index,) = root.glob("v1/*/index.sqlite")
    with closing(sqlite3.connect(index)) as connection:
        return {name for (name,) in connection.execute("SELECT DISTINCT namespace FROM blob")}


def unkeyed(text: str) -> str:
    """A hash that anybody can make."""
    return blake3(text.encode()).hexdigest()


@contextmanager
def server(root: Path, *keys: str, disk: int = 64) -> Iterator[httpx.Client]:
    changes: dict[str, Any] = {"api_key": keys, "disk": disk, "cache_dir": str(root)}
    with (
        open_host(settings("llama", **changes)) as host,
        serving(host) as url,
        httpx.Client(base_url=url, timeout=60) as http,
    ):
        yield http


def test_names_on_disk_tell_nothing_of_keys_and_salts(tmp_path: Path) -> None:
    names = []
    for root in (tmp_path / "here", tmp_path / "there"):
        with server(root, ONE, TWO) as http:
            chat(http, ONE)
            chat(http, TWO, cache_salt="salt")
            (tree,) = get(http, "/cache", ONE)["trees"]
        names += [namespaces_on_disk(root)]
        assert tree["namespace"] in names[-1]
    assert names[0].isdisjoint(names[1]), "another folder has another secret"
    for name in names[0] | names[1]:
        assert not any(
            part and unkeyed(text).startswith(part) for part in name.split("/") for text in (ONE, TWO, "salt")
        )


@pytest.mark.usefixtures("quiet_disk")
def test_a_tenant_finds_its_tree_after_a_restart(tmp_path: Path) -> None:
    with server(tmp_path, ONE, TWO) as http:
        assert chat(http, ONE) == chat(http, ONE, cache_salt="salt") == 0
    with server(tmp_path, TWO, ONE) as http:
        assert chat(http, ONE) > 0
        assert chat(http, ONE, cache_salt="salt") > 0
        assert chat(http, TWO) == 0
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


def test_without_a_disk_names_last_as_long_as_the_server(tmp_path: Path) -> None:
    names = set()
    for _ in range(2):
        with server(tmp_path, ONE, disk=0) as http:
            chat(http, ONE)
            names.add(get(http, "/cache", ONE)["trees"][0]["namespace"])
    assert len(names) == 2
    assert [*tmp_path.iterdir()] == []


def test_a_secret_that_cannot_be_read_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "secret").mkdir()
    with caplog.at_level(logging.WARNING, "leftoff.disk"), server(tmp_path, ONE) as http:
        assert chat(http, ONE) == 0
        assert chat(http, ONE) > 0
    (line,) = [record.getMessage() for record in caplog.records if record.name == "leftoff.disk"]
    assert str(tmp_path) in line


def test_salts_do_not_tell_the_names_of_keys() -> None:
    secret = bytes(32)
    one, everybody = Tenant.of(ONE, secret), Tenant.of("", secret)
    assert everybody.namespace(None) == everybody.namespace("") == ""
    assert everybody.namespace("a") != everybody.namespace("b")
    names = {tenant.namespace(salt).rpartition("/")[2] for tenant in (one, everybody) for salt in ("a", ONE)}
    assert len(names) == 4
    assert one.name not in names
    assert "secret" not in repr(one)


def test_an_exported_tree_of_a_tenant_goes_with_the_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here, with_secret, without = (tmp_path / name for name in ("here", "with", "without"))
    with server(here, ONE) as http:
        chat(http, ONE)
    bundle = str(tmp_path / "tree.leftoff")
    assert main(["cache", "list", "--json", "--cache-dir", str(here)]) == 0
    entries = json.loads(capsys.readouterr().out)["models"][0]["entries"]
    longest = max(entries, key=lambda entry: int(entry["tokens"]))
    assert main(["cache", "export", "--cache-dir", str(here), longest["name"], bundle]) == 0
    assert str(here / "secret") in capsys.readouterr().out
    with_secret.mkdir()
    (with_secret / "secret").write_bytes((here / "secret").read_bytes())
    for folder in (with_secret, without):
        assert main(["cache", "import", "--cache-dir", str(folder), bundle]) == 0
        assert str(folder / "secret") in capsys.readouterr().out
    with server(with_secret, ONE) as http:
        assert chat(http, ONE) > 0
    with server(without, ONE) as http:
        assert chat(http, ONE) == 0
