"""What is deleted is not found again: of models that are being opened, have other settings, or whose file was moved."""

import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from leftoff.disk.folder import LAYOUT, FolderLock
from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.scheduler.gate import Gate
from leftoff.server.reply import stream
from leftoff.server.reply.read_ahead import after_reply
from leftoff.server.server import serving
from tests.factory import model_path
from tests.patience import PATIENCE_S
from tests.server.fixtures import settings
from tests.server.test_hosts import SAID, served

_BRIEFLY_S = 1.0  # longer than it takes to delete


def on_disk(folder: Path, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"most": 2, "disk": 64, "cache_dir": str(folder), "ctx": 2048} | changes


def num_cached(url: str, model: str) -> int:
    body = {"model": model, "prompt": SAID * 5, "max_tokens": 4, "temperature": 0}
    reply = httpx.post(f"{url}/v1/completions", json=body, timeout=PATIENCE_S).raise_for_status().json()
    return int(reply["usage"]["prompt_tokens_details"]["cached_tokens"])


def delete(url: str, query: str = "") -> httpx.Response:
    return httpx.delete(f"{url}/cache{query}", timeout=PATIENCE_S)


def test_a_model_that_is_being_opened_deletes_too(tmp_path: Path) -> None:
    with served("llama", "qwen35", **on_disk(tmp_path)) as (url, _):
        assert num_cached(url, "qwen35") == 0
    with served("llama", "qwen35", **on_disk(tmp_path)) as (url, (_, late)), ThreadPoolExecutor(1) as pool:
        is_made, is_answered, make = Event(), Event(), late._make
        assert make is not None

        def made(gate: Gate) -> ModelHost:
            host = make(gate)
            is_made.set()
            is_answered.wait(_BRIEFLY_S)  # whoever deletes waits for the host
            return host

        late._make = made
        asking = pool.submit(late.open)
        assert is_made.wait(PATIENCE_S)
        assert delete(url).status_code == 200
        is_answered.set()
        asking.result()
        assert num_cached(url, "qwen35") == 0


def test_what_a_model_has_under_other_settings_is_deleted(tmp_path: Path) -> None:
    def seed() -> None:
        with served("llama", "qwen35", **on_disk(tmp_path)) as (url, _):
            assert [num_cached(url, "llama"), num_cached(url, "qwen35")] == [0, 0]

    seed()
    with served("llama", "qwen35", **on_disk(tmp_path, kv_type="bf16")) as (url, _):
        assert num_cached(url, "qwen35") == 0
        assert delete(url).json()["freed_bytes"] > 0
    seed()
    alone = settings("qwen35", alias=("qwen35",), disk=64, cache_dir=str(tmp_path), ctx=2048, kv_type="bf16")
    with open_host(alone) as host, serving(host) as url:
        assert delete(url).json()["freed_bytes"] > 0
    with served("llama", "qwen35", **on_disk(tmp_path)) as (url, _):
        assert num_cached(url, "qwen35") == 0
        assert num_cached(url, "llama") > 0, "it was not asked to delete"


def test_what_a_model_has_is_deleted_though_its_file_was_moved(tmp_path: Path) -> None:
    one, other = tmp_path / "one.gguf", tmp_path / "other.gguf"
    shutil.copy(model_path("qwen35"), one)
    flags = on_disk(tmp_path / "cache")
    with served("llama", model=str(one), **flags) as (url, _):
        assert num_cached(url, "llama") == 0
    one.rename(other)
    with served("gemma3", **flags) as (url, _):
        assert delete(url).json()["freed_bytes"] == 0, "it is another model's"
    with served("llama", model=str(other), kv_type="bf16", **flags) as (url, _):
        assert delete(url).json()["freed_bytes"] > 0
    with served("llama", model=str(other), **flags) as (url, _):
        assert num_cached(url, "llama") == 0


def test_what_cannot_be_deleted_now_keeps_nothing_else_and_is_deleted_later(tmp_path: Path) -> None:
    with served("llama", "qwen35", "gemma3", **on_disk(tmp_path, most=3)) as (url, _):
        assert [num_cached(url, name) for name in ("qwen35", "gemma3")] == [0, 0]
    with served("llama", "qwen35", "gemma3", **on_disk(tmp_path, most=3)) as (url, models):
        assert num_cached(url, "llama") == 0
        folders = [path for path in (tmp_path / LAYOUT).iterdir() if path != _folder_of(models[0].open())]
        locks = [FolderLock.take(folder) for folder in folders]
        refused = delete(url)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "not_deleted")
        assert num_cached(url, "llama") == 0, "the first was deleted from all the same"
        locks[1].release()
        assert delete(url).status_code == 503
        locks[0].release()
        assert delete(url).status_code == 200
        assert [num_cached(url, name) for name in ("qwen35", "gemma3")] == [0, 0]


def _folder_of(host: ModelHost) -> Path:
    return Path(host.settings.cache_dir) / LAYOUT / host.engine.memory.fingerprint[:16]


def test_a_reply_that_has_just_ended_is_not_kept_after_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_host(settings("llama", alias=("llama",))) as host, serving(host) as url:

        def deleted_first(*arguments: Any) -> None:  # noqa: ANN401
            host.call(lambda: host.forget(lambda _: True)).result()
            after_reply(*arguments)

        def ask(texts: Sequence[str]) -> None:
            body = {"messages": [{"role": "user", "content": text} for text in texts], "max_tokens": 8}
            httpx.post(f"{url}/v1/chat/completions", json=body, timeout=PATIENCE_S).raise_for_status()

        kept: list[str] = []
        assert host.remembered is not None
        monkeypatch.setattr(host.remembered, "add", lambda _key, written, _namespace: kept.append(written.text))
        ask(["what stays"])
        assert len(kept) == 1
        monkeypatch.setattr(stream, "after_reply", deleted_first)
        ask(["what goes"])
        assert len(kept) == 1


def test_an_empty_salt_deletes_nothing() -> None:
    with open_host(settings("llama")) as host, serving(host) as url:
        assert num_cached(url, "tiny") == 0
        refused = delete(url, "?salt=")
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "salt")
        assert num_cached(url, "tiny") > 0
