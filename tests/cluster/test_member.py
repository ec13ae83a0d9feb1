"""Servers that share a store; and what a server without one must not import."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx
import pytest

from leftoff.chat.template.render import TemplateError
from leftoff.cli.loading import open_fleet
from leftoff.cluster.member import FleetMember
from leftoff.disk.secret import SECRET_BYTES
from leftoff.engine.memory.base import MemoryKind
from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.host.late_host import LateHost
from leftoff.host.seats import Seats
from leftoff.server.hosts import Hosts
from leftoff.server.server import Server, serving
from leftoff.setting import SettingError
from leftoff.store.collector import Collector
from leftoff.store.fleet_key import FleetKey
from leftoff.store.keys import SECRET
from leftoff.store.tools import about, clear
from tests.cache.chain import ChainMemory
from tests.patience import PATIENCE_S, until
from tests.server.fixtures import settings
from tests.server.wire import Texts
from tests.store.parts import Redis

UNUSED = "import sys, leftoff.cli.serve, leftoff.server.server; print([*{'redis', 'obstore'} & {*sys.modules}])"


def test_nothing_of_the_extra_is_imported_without_it() -> None:
    shown = subprocess.run([sys.executable, "-c", UNUSED], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


class Chat:
    """A conversation that is told to one server after the other."""

    def __init__(self, seed: int, model: str = "any") -> None:
        self._texts = Texts(seed)
        self._model = model
        self.messages = [{"role": "system", "content": self._texts.text(600)}]

    def ask(self, url: str) -> dict[str, int]:
        self.messages.append({"role": "user", "content": self._texts.text(30)})
        body = {"model": self._model, "messages": self.messages, "max_tokens": 8, "temperature": 0}
        answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=PATIENCE_S).json()
        self.messages.append(answer["choices"][0]["message"])
        usage = answer["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        return {"prompt": usage["prompt_tokens"], "computed": usage["prompt_tokens"] - cached}


@contextmanager
def server(folder: Path, index: Redis, **changes: object) -> Iterator[tuple[ModelHost, str]]:
    """One that finds reading so slow that whatever is stored is worth a fetch."""
    shared = {"store": f"file://{folder}/store", "index": index.url, "read_ahead": False, "slots": 1}
    whole = settings("qwen35", **(shared | changes))
    with open_host(whole, fleet=open_fleet(whole)) as host, serving(host) as url:
        host.call(partial(_make_slow, host)).result()
        yield host, url


def _make_slow(host: ModelHost) -> None:
    host.cache.costs.rate_tokens = 1 << 30  # nothing is measured any more
    host.cache.costs.prefill_tokens_per_ms = 0.05


def settled(*hosts: ModelHost) -> bool:
    shared = [tier.blobs for host in hosts for tier in host.cache.tiers.lower if tier.is_shared]
    assert len(shared) == len(hosts)
    return until(lambda: not any(blobs.num_waiting for blobs in shared))


def figures(url: str) -> dict[str, float]:
    text = httpx.get(f"{url}/metrics", timeout=PATIENCE_S).text
    return {part: float(value) for part, value in re.findall(r'leftoff_reachable{part="(\w+)"} (\S+)', text)}


def test_a_conversation_moves_and_a_restart_of_the_index_loses_nothing(tmp_path: Path, index: Redis) -> None:
    with server(tmp_path, index) as (one, first), server(tmp_path, index) as (other, second):
        chat = Chat(1)
        whole = chat.ask(first)
        assert whole["computed"] == whole["prompt"]
        assert settled(one)
        computed = [chat.ask(url)["computed"] for url in (second, first, second) if settled(one, other)]
        assert max(computed) < 60, "only what is new is read"
        index.kill()
        assert chat.ask(first)["prompt"] > whole["prompt"]  # answered all the same
        assert until(lambda: figures(first) == {"index": 0.0, "store": 1.0})
        index.start()
        link, others = (each.fleet.link for each in (one, other) if isinstance(each.fleet, FleetMember))
        assert until(lambda: not (link.index_breaker.is_failing or others.index_breaker.is_failing))
        link.call(Collector(link, 1 << 40).collect()).result()
        assert settled(one, other)
        assert chat.ask(second)["computed"] < 60, "what was stored is known again"
        assert figures(first) == {"index": 1.0, "store": 1.0}


@contextmanager
def joined(folder: Path, index: Redis) -> Iterator[FleetMember]:
    member = FleetMember(f"file://{folder}/store", index.url, budget_bytes=1 << 30, days=1)
    member.join(ChainMemory(MemoryKind.HYBRID), "a test")
    try:
        yield member
    finally:
        member.close()


def test_what_a_group_is_of_is_said_again_after_the_store_was_cleared(
    tmp_path: Path, index: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what the server stores from then on would not be found by whoever deletes a tenant's blobs of this model."""
    monkeypatch.setattr("leftoff.store.collector.PAUSE_S", 0.05)
    with joined(tmp_path, index) as member:
        link = member.link
        link.call(clear(link)).result(PATIENCE_S)
        assert until(lambda: link.call(about(link.objects, link.group)).result(PATIENCE_S).described == "a test")


def test_a_secret_that_the_store_has_lost_is_put_back(
    tmp_path: Path, index: Redis, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leftoff.cluster.member._KEEP_S", 0.05)
    file = tmp_path / "store" / "secret"
    with joined(tmp_path, index) as member:
        secret = member.secret(b"1" * SECRET_BYTES)
        file.unlink()
        assert until(file.exists)
        assert file.read_bytes() == secret
        assert until(lambda: "had lost the secret" in caplog.text)


def test_a_server_whose_secret_was_replaced_says_so(
    tmp_path: Path, index: Redis, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leftoff.cluster.member._KEEP_S", 0.05)
    with joined(tmp_path, index) as member:
        member.secret(b"1" * SECRET_BYTES)
        (tmp_path / "store" / "secret").write_bytes(b"6" * SECRET_BYTES)
        assert until(lambda: "another secret than this server" in caplog.text)


async def _tell_secret(member: FleetMember, secret: bytes) -> None:
    """As every heartbeat does."""
    await member.link.index.redis.set(SECRET, secret)


def test_a_server_that_finds_no_secret_in_the_store_takes_that_of_the_index(tmp_path: Path, index: Redis) -> None:
    with joined(tmp_path, index) as member, joined(tmp_path, index) as other:
        member.link.call(_tell_secret(member, b"2" * SECRET_BYTES)).result()
        assert other.secret(b"3" * SECRET_BYTES) == b"2" * SECRET_BYTES
        assert (tmp_path / "store" / "secret").read_bytes() == b"2" * SECRET_BYTES


def test_a_server_that_finds_no_secret_anywhere_waits_for_a_heartbeat_of_those_that_run(
    tmp_path: Path, index: Redis
) -> None:
    with joined(tmp_path, index) as member, joined(tmp_path, index) as other:
        member.link.call(member.link.index.redis.delete(SECRET)).result()  # type: ignore[arg-type]
        member.link.call(member.link.objects.put(f"{member.link.group}/a/name", b"a tenant")).result()
        beat = threading.Timer(0.3, lambda: member.link.call(_tell_secret(member, b"4" * SECRET_BYTES)).result())
        beat.start()
        assert other.secret(b"5" * SECRET_BYTES) == b"4" * SECRET_BYTES
        beat.join()


def test_another_kv_type_shares_nothing_and_is_said_to(
    tmp_path: Path, index: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    with server(tmp_path, index) as (one, first), server(tmp_path, index, kv_type="f32") as (_, second):
        told = Chat(2).ask(first)
        assert settled(one)
        assert Chat(2).ask(second)["computed"] == told["prompt"]
        assert until(lambda: "shares nothing with this one" in caplog.text)
    assert "KV f32" in caplog.text


def test_a_store_without_an_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="takes --index too"):
        open_fleet(settings(store=f"file://{tmp_path}"))


def test_a_host_that_cannot_be_opened_leaves_its_fleet(tmp_path: Path, index: Redis) -> None:
    broken = tmp_path / "template.jinja"
    broken.write_text("{% if %}")
    whole = settings("qwen35", index=index.url, chat_template_file=str(broken))
    with pytest.raises(TemplateError):
        open_host(whole, fleet=open_fleet(whole))
    assert not any(thread.name == "leftoff-store" for thread in threading.enumerate())


def test_a_fleet_that_was_never_joined_is_left_in_peace(index: Redis) -> None:
    fleet = open_fleet(settings(index=index.url))
    assert fleet is not None
    fleet.close()


def test_servers_with_one_key_share_and_others_do_not(index: Redis, tmp_path: Path) -> None:
    keys = [tmp_path / name for name in ("ours", "theirs")]
    for key in keys:
        FleetKey.create(key)
    chat = Chat(seed=60)
    with server(tmp_path, index, fleet_key=str(keys[0]), api_key=("a",)) as (one, _):
        names = one.secret
    with server(tmp_path, index, fleet_key=str(keys[0])) as (one, url):
        assert one.secret == names, "tenants have the names that the key gives them"
        assert not (tmp_path / "store" / "secret").exists()
        chat.ask(url)
        assert until(lambda: one.cache.tiers.lower[-1].blobs.num_waiting == 0 and _objects(tmp_path))
        with server(tmp_path, index, fleet_key=str(keys[0])) as (_, other):
            assert chat.ask(other)["computed"] < 100
        with server(tmp_path, index, fleet_key=str(keys[1])) as (_, stranger):
            asked = chat.ask(stranger)
            assert asked["computed"] == asked["prompt"]


def _objects(folder: Path) -> list[Path]:
    return [path for path in (folder / "store").rglob("*.*.*.*.*") if path.is_file()]


def test_a_fleet_without_a_key_says_what_that_means(
    index: Redis, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with server(tmp_path, index):
        assert "no --fleet-key: whoever can write to the index or the store can" in caplog.text


@contextmanager
def served(folder: Path, index: Redis) -> Iterator[tuple[str, LateHost]]:
    """A server of two models with room for one, and the second of them, which nobody has asked."""
    seats = Seats(most=1)
    shared = {"store": f"file://{folder}/store", "index": index.url, "read_ahead": False, "slots": 1}

    def late(architecture: str) -> LateHost:
        whole = settings(architecture, alias=(architecture,), **shared)
        return LateHost(architecture, seats.add(), lambda gate: open_host(whole, fleet=open_fleet(whole), gate=gate))

    first, second = late("llama"), late("qwen35")
    with closing(first), closing(second):
        hosts = Hosts(first.open(), [second])
        with closing(Server(hosts, replace(hosts.first.settings, port=0))) as server:
            thread = threading.Thread(target=server.run, daemon=True)
            thread.start()
            hosts.announce(server.url)
            yield server.url, second
            server.stop()
            thread.join()


def test_every_model_of_a_server_shares_what_it_has_read(tmp_path: Path, index: Redis) -> None:
    chat = Chat(70, model="qwen35")
    with served(tmp_path, index) as (first, late), served(tmp_path, index) as (second, other):
        whole = chat.ask(first)
        assert settled(late.open())
        other.open().call(partial(_make_slow, other.open())).result()
        assert chat.ask(second)["computed"] < 60 < whole["computed"], "the other server has it from the store"
        assert httpx.delete(f"{second}/cache", timeout=PATIENCE_S).status_code == 200
        assert not _objects(tmp_path), "what a model that is not the first has stored is deleted too"
