"""A header that is read before anybody asks, and stays whatever else comes."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.server.admin.prewarm import prewarm_at_start
from leftoff.server.server import serving
from leftoff.setting import SettingError
from tests.chat.conversations import TOOLS
from tests.patience import PATIENCE_S
from tests.server.fixtures import settings
from tests.server.wire import Texts, Wire, says, wired

KINDS = {"hybrid": "qwen35", "recurrent": "mamba2", "window": "gemma3", "attention": "llama"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_pinned_header_outlives_what_fills_the_budget(kind: str) -> None:
    """All that comes is longer, and so worth more by the byte."""
    texts = Texts(7)
    header = says("system", texts.text(60))
    with wired(KINDS[kind], slots=1, ram=1) as wire:
        told = wire.post("/cache/prewarm", {"messages": [header]})
        assert told["tokens"] == told["computed"] > 60
        assert 0 < told["bytes"] < 1 << 20
        wire.post("/v1/completions", {"prompt": [texts.text(150) for _ in range(40)], "max_tokens": 1})
        reply = wire.chat([header, says("user", texts.text(30))], 2)
        assert reply.cached >= told["tokens"] - 1
        assert reply.computed < 60


@pytest.mark.parametrize("kind", KINDS)
def test_with_a_grid_the_whole_chunks_of_a_header_are_pinned(kind: str) -> None:
    texts = Texts(9)
    header = says("system", texts.text(200))
    with wired(KINDS[kind], slots=1, ram=2, deterministic=True) as wire:
        told = wire.post("/cache/prewarm", {"messages": [header]})
        assert told["tokens"] == told["computed"] // 64 * 64 > 128
        assert told["bytes"] > 0
        for _ in range(8):
            wire.chat([says("user", texts.text(400))], 2)
        assert wire.chat([header, says("user", texts.text(30))], 2).cached == told["tokens"]
        short = wire.post("/cache/prewarm", {"messages": [says("system", texts.text(5))]})
        assert (short["tokens"], short["bytes"]) == (0, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_header_that_conversations_have_read_is_not_read_again(kind: str) -> None:
    texts = Texts(11)
    header = says("system", texts.text(400))
    with wired(KINDS[kind], slots=2) as wire:
        for _ in range(2):
            wire.chat([header, says("user", texts.text(30))], 2)
        assert wire.post("/cache/prewarm", {"messages": [header]})["computed"] == 0
        assert wire.chat([header, says("user", texts.text(30))], 2).computed < 60


def test_what_is_there_when_a_header_is_prewarmed_is_spared_to_nobody() -> None:
    with wired("llama", slots=1) as wire:
        header = says("system", Texts(12).text(200))
        for _ in range(2):
            told = wire.post("/cache/prewarm", {"messages": [header]})
        assert told["computed"] == 0
        assert wire.http.get("/cache/clients").json()["clients"] == []
        assert "leftoff_reused_tokens_total 0.0" in wire.http.get("/metrics").text


def test_files_are_read_at_start(host: ModelHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    texts = Texts(8)
    (tmp_path / "system.txt").write_text(texts.text(200))
    talk = {"messages": [says("system", texts.text(100)), says("user", texts.text(50))]}
    (tmp_path / "talk.json").write_text(json.dumps(talk))
    files = tuple(str(tmp_path / name) for name in ("system.txt", "talk.json"))
    monkeypatch.setattr(host, "settings", settings(prewarm=files))
    (_, first), (_, second) = prewarm_at_start(host)
    assert first.computed == first.tokens > 200
    assert second.tokens > 150


@pytest.mark.parametrize(("name", "content"), [("a.json", "{"), ("b.json", "[]"), ("c.json", '{"messages": 1}')])
def test_a_file_that_is_none_is_named(
    host: ModelHost, monkeypatch: pytest.MonkeyPatch, name: str, content: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    monkeypatch.setattr(host, "settings", settings(prewarm=(str(tmp_path / name),)))
    with pytest.raises(SettingError, match=name):
        prewarm_at_start(host)


def test_what_does_not_fit_is_said() -> None:
    texts = Texts(9)
    with wired("qwen35", slots=1, ram=0) as wire:
        reply = wire.http.post("/cache/prewarm", json={"messages": [says("system", texts.text(300))]})
        assert reply.status_code == 507
        assert "--ram" in reply.json()["error"]["message"]


def test_the_headers_used_last_are_learned_and_read_by_another_model(tmp_path: Path) -> None:
    texts = Texts(10)
    header, other, tool = says("system", texts.text(300)), says("system", texts.text(400)), TOOLS[0]
    kept: dict[str, Any] = {"cache_dir": str(tmp_path), "disk": 64, "ram": 64}
    with wired("qwen35", **kept) as wire:
        wire.chat([other, says("user", "hello")], 1)
        for words in ("hello", "good morning"):
            wire.chat([header, says("user", words)], 1, [tool])
        wire.chat([says("system", "be kind"), says("user", "hello")], 1)
        assert wire.post("/cache/prewarm/last", {})["failed"] == []
    files = [*(tmp_path / "headers").iterdir()]
    assert len(files) == 2, "one for each header, none for a short one"
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    with open_host(settings("llama", prewarm=("last",), **kept)) as host:
        read = prewarm_at_start(host)
        assert [name for name, _ in read] == ["last", "last"]
        assert all(one.computed > 300 for _, one in read), "nothing was known of this model"
        with serving(host) as url, httpx.Client(base_url=url, timeout=PATIENCE_S) as http:
            reply = Wire(http).chat([header, says("user", "good night")], 1, [tool])
    assert reply.computed < 60


def test_only_what_stays_after_the_rules_is_learned(tmp_path: Path) -> None:
    texts = Texts(11)
    rules = texts.text(300)
    with wired("llama", cache_dir=str(tmp_path), disk=64, ram=64, move=(r"day \d+",)) as wire:
        for day in range(5):
            wire.chat([says("system", f"day {day}{rules}"), says("user", "hello")], 1)
        (header,) = wire.post("/cache/prewarm/last", {})["headers"]
    (file,) = (tmp_path / "headers").iterdir()
    assert json.loads(file.read_bytes())["messages"] == [says("system", rules)]
    assert header["computed"] <= 1


def test_no_tenant_reads_the_header_of_another(tmp_path: Path) -> None:
    texts = Texts(12)
    kept: dict[str, Any] = {"cache_dir": str(tmp_path), "disk": 64, "ram": 64}
    with wired("llama", api_key=("ann", "bob"), **kept) as wire:
        keys = {name: {"Authorization": f"Bearer {name}"} for name in ("ann", "bob")}
        body = {"messages": [says("system", texts.text(300)), says("user", "hello")], "max_tokens": 1}
        assert wire.http.post("/v1/chat/completions", json=body, headers=keys["ann"]).status_code == 200
        found = {name: wire.http.post("/cache/prewarm/last", headers=key).json() for name, key in keys.items()}
    assert len(found["ann"]["headers"]) == 1
    assert found["bob"] == {"headers": [], "failed": []}


def test_a_learned_header_that_is_damaged_or_too_long_is_passed_over(tmp_path: Path) -> None:
    texts = Texts(13)
    kept: dict[str, Any] = {"cache_dir": str(tmp_path), "disk": 64, "ram": 64}
    with wired("llama", **kept) as wire:
        for size in (300, 700):
            wire.chat([says("system", texts.text(size)), says("user", "hello")], 1)
    folder = tmp_path / "headers"
    for number, content in enumerate((b"{", b'{"messages": [{}]}', b"\xff", b'{"messages": 1}')):
        (folder / f".{number}.json").write_bytes(content)
    with wired("llama", ctx=512, **kept) as wire:
        done = wire.post("/cache/prewarm/last", {})
    assert [header["tokens"] > 300 for header in done["headers"]] == [True]
    (reason,) = done["failed"]
    assert "512" in reason


def test_nothing_is_learned_without_a_disk() -> None:
    texts = Texts(14)
    with wired("llama", ram=64) as wire:
        wire.chat([says("system", texts.text(300)), says("user", "hello")], 1)
        assert wire.post("/cache/prewarm/last", {}) == {"headers": [], "failed": []}
