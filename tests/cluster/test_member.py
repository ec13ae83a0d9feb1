"""Servers that share a store; and what a server without one must not import."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest

from leftoff.cli.loading import open_fleet
from leftoff.cluster.member import FleetMember
from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.server.server import serving
from leftoff.setting import SettingError
from leftoff.store.collector import Collector
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

    def __init__(self, seed: int) -> None:
        self._texts = Texts(seed)
        self.messages = [{"role": "system", "content": self._texts.text(600)}]

    def ask(self, url: str) -> dict[str, int]:
        self.messages.append({"role": "user", "content": self._texts.text(30)})
        body = {"messages": self.messages, "max_tokens": 8, "temperature": 0}
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
        index.start()
        link, others = (each.fleet.link for each in (one, other) if isinstance(each.fleet, FleetMember))
        assert until(lambda: not (link.index_breaker.is_failing or others.index_breaker.is_failing))
        link.call(Collector(link, 1 << 40).collect()).result()
        assert settled(one, other)
        assert chat.ask(second)["computed"] < 60, "what was stored is known again"


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
