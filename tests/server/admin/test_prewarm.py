"""A header that is read before anybody asks, and stays whatever else comes."""

import json
from pathlib import Path

import pytest

from leftoff.server.admin.prewarm import prewarm_files
from leftoff.server.service import Service
from leftoff.setting import SettingError
from tests.server.fixtures import settings
from tests.server.wire import Texts, says, wired

KINDS = {"hybrid": "qwen35", "recurrent": "mamba2", "window": "gemma3", "attention": "llama"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_pinned_header_outlives_what_fills_the_budget(kind: str) -> None:
    texts = Texts(7)
    header = says("system", texts.text(400))
    with wired(KINDS[kind], slots=1, ram=2) as wire:
        told = wire.post("/cache/prewarm", {"messages": [header]})
        assert told["tokens"] == told["computed"] > 400
        assert 0 < told["bytes"] < 2 << 20
        for _ in range(8):
            wire.chat([says("user", texts.text(900))], 2)
        reply = wire.chat([header, says("user", texts.text(30))], 2)
        assert reply.cached >= told["tokens"] - 1
        assert reply.computed < 60


def test_files_are_read_at_start(tmp_path: Path) -> None:
    texts = Texts(8)
    (tmp_path / "system.txt").write_text(texts.text(200))
    talk = {"messages": [says("system", texts.text(100)), says("user", texts.text(50))]}
    (tmp_path / "talk.json").write_text(json.dumps(talk))
    files = tuple(str(tmp_path / name) for name in ("system.txt", "talk.json"))
    with Service(settings(prewarm=files)) as service:
        first, second = prewarm_files(service)
        assert first.computed == first.tokens > 200
        assert second.tokens > 150


@pytest.mark.parametrize(("name", "content"), [("a.json", "{"), ("b.json", "[]"), ("c.json", '{"messages": 1}')])
def test_a_file_that_is_none_is_named(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with Service(settings(prewarm=(str(tmp_path / name),))) as service, pytest.raises(SettingError, match=name):
        prewarm_files(service)


def test_what_does_not_fit_is_said() -> None:
    texts = Texts(9)
    with wired("qwen35", slots=1, ram=0) as wire:
        reply = wire.http.post("/cache/prewarm", json={"messages": [says("system", texts.text(300))]})
        assert reply.status_code == 507
        assert "--ram" in reply.json()["error"]["message"]
