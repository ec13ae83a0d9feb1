"""Deletion deletes: afterwards no file, database, object or index has a word or a token of the text."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import redis as redis_client

from leftoff.blobs.store import MediumBlobStore
from leftoff.cli.loading import open_fleet
from leftoff.cli.main import main
from leftoff.cluster.member import FleetMember
from leftoff.config import MIB
from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.host.late_host import LateHost
from leftoff.host.seats import Seats
from leftoff.server.hosts import Hosts
from leftoff.server.server import serving
from leftoff.store.collector import Collector
from tests.patience import PATIENCE_S, until
from tests.server.fixtures import settings
from tests.store.parts import Redis, redis, s3, s3_environment

KEYS = ("first-key", "second-key")
SECRET, OTHERS = "the old bridge over the river", "a small boat on the lake"
HEADER = " and ".join(["where the road ends"] * 80)  # long enough to be kept for prewarming


@pytest.fixture
def index() -> Iterator[Redis]:
    with redis() as part:
        yield part


@contextmanager
def served(root: Path, index: Redis, **changes: Any) -> Iterator[tuple[ModelHost, httpx.Client]]:  # noqa: ANN401
    """A server with a disk, a store and an index."""
    fleet = FleetMember(f"file://{root}/store", index.url, budget_bytes=100 * MIB, days=1)
    asked = settings(disk=64, cache_dir=str(root / "cache"), **changes)
    with open_host(asked, fleet=fleet) as host, serving(host) as url, httpx.Client(base_url=url) as http:
        yield host, http


def ask(http: httpx.Client, text: str, key: str = "", salt: str | None = None, model: str | None = None) -> str:
    """A chat whose header and question have the text; returns the reply."""
    messages = [{"role": "system", "content": f"{text} {HEADER}"}, {"role": "user", "content": text}]
    body = {"messages": messages, "max_tokens": 8, "temperature": 0, "ignore_eos": True, "cache_salt": salt}
    body["model"] = model
    reply = http.post("/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {key or 'none'}"})
    assert reply.status_code == 200, reply.text
    return str(reply.json()["choices"][0]["message"]["content"])


def places(root: Path, index: Redis, host: ModelHost, *texts: str) -> set[str]:
    """Every file, object and key of the index that has one of the texts, or its tokens."""
    wanted = [text.encode() for text in texts]
    wanted += [host.prompts.tokens(text)[1:-1].astype(np.int32).tobytes() for text in texts]
    contents = {path.name: path.read_bytes() for path in root.rglob("*") if path.is_file()} | values(index)
    return {name for name, content in contents.items() if any(each in content for each in wanted)}


def values(index: Redis) -> dict[str, bytes]:
    """All that an index holds, by key."""
    with closing(redis_client.Redis.from_url(index.url)) as client:
        readers: dict[Any, Callable[[bytes], Any]] = {
            b"string": client.get,
            b"set": client.smembers,
            b"hash": client.hgetall,
            b"zset": lambda key: client.zrange(key, 0, -1),
            b"stream": client.xrange,
        }
        found = {key: readers[client.type(key)](key) for key in client.scan_iter()}
    return {str(key): value if isinstance(value, bytes) else repr(value).encode() for key, value in found.items()}


def is_written(root: Path, index: Redis, host: ModelHost, *texts: str) -> bool:
    """The header, the reply and the tokens are on disk, and blobs in the store."""
    names = " ".join(places(root, index, host, *texts))
    return all(part in names for part in (".json", "replies.sqlite", "index.sqlite", ":reply:")) and bool(objects(root))


def objects(root: Path) -> list[Path]:
    return [path for path in (root / "store").rglob("*.*.*.*.*") if path.is_file()]


def flush(host: ModelHost) -> None:
    for tier in host.cache.tiers.lower:
        assert isinstance(tier.blobs, MediumBlobStore)
        assert tier.blobs.flush(PATIENCE_S)


def test_a_tenant_deletes_all_that_is_its_own(tmp_path: Path, index: Redis) -> None:
    with served(tmp_path, index, api_key=KEYS) as (host, http):
        others = (OTHERS, ask(http, OTHERS, KEYS[1]))
        assert until(lambda: is_written(tmp_path, index, host, *others))
        kept = len(objects(tmp_path))
        own = (SECRET, ask(http, SECRET, KEYS[0]), ask(http, SECRET, KEYS[0], salt="a salt"))
        assert until(lambda: is_written(tmp_path, index, host, *own) and len(objects(tmp_path)) > kept)
        flush(host)
        reply = http.delete("/cache", headers={"Authorization": f"Bearer {KEYS[0]}"})
        assert reply.status_code == 200, reply.text
        assert places(tmp_path, index, host, *own) == set()
        assert is_written(tmp_path, index, host, *others)
        assert len(objects(tmp_path)) >= kept


@pytest.mark.parametrize("key", ["", KEYS[0]], ids=["without a key", "with a key"])
def test_the_store_is_emptied_after_its_index_was_rebuilt(tmp_path: Path, index: Redis, key: str) -> None:
    with served(tmp_path, index, api_key=(key,) if key else (), remember_replies=False) as (host, http):
        ask(http, SECRET, key, salt="a salt")
        ask(http, SECRET, key)
        assert until(lambda: len({path.parents[1] for path in objects(tmp_path)}) == 2)
        flush(host)
    with closing(redis_client.Redis.from_url(index.url)) as client:
        client.flushall()
    (tmp_path / "cache").rename(tmp_path / "gone")
    with served(tmp_path, index, api_key=(key,) if key else ()) as (host, http):
        assert isinstance(host.fleet, FleetMember)
        link = host.fleet.link
        link.call(Collector(link, 1 << 40).rebuild()).result(PATIENCE_S)
        assert http.delete("/cache", headers={"Authorization": f"Bearer {key or 'none'}"}).status_code == 200
        assert objects(tmp_path) == []
        assert link.call(link.index.usage()).result(PATIENCE_S).num_blobs == 0


def test_who_deletes_is_told_that_the_store_cannot_be_reached(tmp_path: Path, index: Redis) -> None:
    with served(tmp_path, index) as (_, http):
        ask(http, SECRET)
        index.kill()
        reply = http.delete("/cache")
        assert reply.status_code == 503
        assert reply.json()["error"]["code"] == "not_deleted"
        index.start()
        assert until(lambda: http.delete("/cache").status_code == 200)


def test_a_stored_response_and_the_reports_are_forgotten(tmp_path: Path, index: Redis) -> None:
    with served(tmp_path, index) as (_, http):
        body = {"input": SECRET, "max_output_tokens": 16}
        names = [
            http.post("/v1/responses", json=body, headers=headers).json()["id"]
            for headers in ({}, {"x-cache-salt": "a salt"})
        ]
        assert http.delete("/cache?salt=a%20salt").status_code == 200
        assert [http.get(f"/v1/responses/{name}").status_code for name in names] == [200, 404]
        assert http.delete("/cache").status_code == 200
        assert http.get("/cache/requests").json()["requests"] == []
        assert http.get(f"/v1/responses/{names[0]}").status_code == 404


def test_what_is_read_ahead_is_deleted_with_the_rest(tmp_path: Path, index: Redis) -> None:
    with served(tmp_path, index) as (host, http):
        for _ in range(3):
            ask(http, SECRET)
            assert http.delete("/cache").status_code == 200
        host.call(host.cache.save_idle).result(PATIENCE_S)
        assert host.call(lambda: [tier.budget.used_bytes for tier in host.cache.tiers]).result(PATIENCE_S) == [0, 0, 0]


def test_the_command_leaves_nothing_behind(tmp_path: Path, index: Redis, capsys: pytest.CaptureFixture[str]) -> None:
    with served(tmp_path, index) as (host, http):
        own = (SECRET, ask(http, SECRET))
        assert until(lambda: is_written(tmp_path, index, host, *own))
    assert main(["cache", "clear", "--cache-dir", str(tmp_path / "cache")]) == 0
    assert "headers" in capsys.readouterr().out
    assert main(["cache", "clear", "--store", f"file://{tmp_path}/store", "--index", index.url]) == 0
    with open_host(settings()) as host:
        assert places(tmp_path, index, host, *own) == set()
    assert objects(tmp_path) == []


@contextmanager
def served_late(store: str, index: Redis) -> Iterator[tuple[httpx.Client, LateHost]]:
    """A server of two models, and the second of them, which nobody has asked."""
    seats, own = Seats(most=2), {"store": store, "index": index.url, "api_key": KEYS, "read_ahead": False}

    def late(architecture: str) -> LateHost:
        whole = settings(architecture, alias=(architecture,), **own)
        fleet = partial(open_fleet, whole)
        make = lambda gate: open_host(whole, fleet=fleet(), gate=gate)  # noqa: E731
        return LateHost(architecture, seats.add(), make, settings=whole, fleet=fleet)

    with closing(late("llama")) as first, closing(late("qwen35")) as second:
        hosts = Hosts(first.open(), [second])
        with serving(hosts) as url, httpx.Client(base_url=url, timeout=PATIENCE_S) as http:
            yield http, second


@contextmanager
def store_in(medium: str, folder: Path) -> Iterator[str]:
    """The URL of a store."""
    if medium == "folder":
        yield f"file://{folder}/store"
        return
    with s3() as bucket, s3_environment(bucket.port):
        yield bucket.url


@pytest.mark.parametrize("medium", ["folder", "s3"])
def test_what_a_model_has_stored_is_deleted_though_nobody_has_asked_it(
    tmp_path: Path, index: Redis, medium: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with store_in(medium, tmp_path) as store:

        def stored() -> dict[str, int]:
            """How many blobs each model has in the store."""
            assert main(["cache", "list", "--store", store, "--index", index.url, "--json"]) == 0
            groups = json.loads(capsys.readouterr().out)["groups"]
            return {group["described"]: group["num_objects"] for group in groups}

        with served_late(store, index) as (http, late):
            for key in KEYS:
                ask(http, SECRET, key, model="qwen35")
                ask(http, SECRET, key, model="llama")
            flush(late.open())
        before = stored()
        model = next(described for described in before if described.startswith(late.seat.path.stem))  # type: ignore[union-attr]
        with served_late(store, index) as (http, late):
            left = before[model]
            for key in KEYS:
                own = {"Authorization": f"Bearer {key}"}
                freed = http.delete("/cache?model=qwen35", headers=own).json()
                assert freed["freed_bytes"] > 0
                left -= freed["entries"]
                assert (left > 0) is (key == KEYS[0]), "what is another's stays"
                assert stored() == before | {model: left}
            assert late.host is None, "it was not opened for that"
            assert sum(":reply:" in key for key in values(index)) == len(KEYS), "those of the other model"
            index.kill()
            refused = http.delete("/cache?model=qwen35", headers=own)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "not_deleted")
