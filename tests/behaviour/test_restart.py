"""A server that starts again goes on where the last one stood."""

import logging
from pathlib import Path
from typing import Any

import pytest

from leftoff.host.build import open_host
from tests.server.alike import NUM_TOP, difference
from tests.server.cold import rounding_of
from tests.server.fixtures import settings
from tests.server.wire import Texts, says, wired

KINDS = {
    "qwen35": "hybrid",
    "mamba2": "recurrent",
    "gemma3": "window",
    "llama": "attention",
    "deepseek4": "hybrid",
}
pytestmark = pytest.mark.usefixtures("quiet_disk")


@pytest.mark.parametrize("architecture", KINDS)
def test_the_next_turn_reads_only_what_is_new(architecture: str, tmp_path: Path) -> None:
    texts = Texts(3)
    chat = [says("system", texts.text(150)), says("user", texts.text(300))]
    store: dict[str, Any] = {"disk": 256, "cache_dir": str(tmp_path), "slots": 1}
    with wired(architecture, **store) as wire:
        assert wire.memory == KINDS[architecture]
        first = wire.chat(chat, 40)
    chat += [says("assistant", first.text), says("user", texts.text(20))]
    with wired(architecture, **store) as wire:
        warm = wire.chat(chat, 16, num_top=NUM_TOP)
        wire.forget()
        cold = wire.chat(chat, 16, num_top=NUM_TOP)
    new = warm.prompt_tokens - first.prompt_tokens - first.reply_tokens
    assert cold.computed == cold.prompt_tokens
    assert warm.computed <= new + 40, "no more than the new message, and a reply that the template tells differently"
    assert warm.cached >= first.prompt_tokens - 16
    assert difference(warm, cold) < rounding_of(architecture)


def test_another_kv_type_never_matches(tmp_path: Path) -> None:
    texts = Texts(4)
    chat = [says("user", texts.text(300))]
    with wired("qwen35", disk=64, cache_dir=str(tmp_path)) as wire:
        wire.chat(chat, 4)
    with wired("qwen35", disk=64, cache_dir=str(tmp_path), kv_type="f32") as wire:
        assert wire.chat(chat, 4).cached == 0


def test_a_second_model_on_the_folder_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shared = settings(disk=64, cache_dir=str(tmp_path))
    with open_host(shared) as first, caplog.at_level(logging.WARNING, "leftoff.disk"), open_host(shared) as second:
        assert first.cache.disk is not None
        assert second.cache.disk is None
    (line,) = [record.getMessage() for record in caplog.records if record.name == "leftoff.disk"]
    assert str(tmp_path) in line
    assert "is in use by another model of this server with the same file" in line


def test_a_damaged_file_is_computed_again(tmp_path: Path) -> None:
    texts = Texts(5)
    chat = [says("user", texts.text(900))]
    with wired("qwen35", disk=64, cache_dir=str(tmp_path)) as wire:
        cold = wire.chat(chat, 8)
    for path in [path for path in tmp_path.rglob("blobs/*/*") if path.is_file()]:
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    with wired("qwen35", disk=64, cache_dir=str(tmp_path)) as wire:
        again = wire.chat(chat, 8)
    assert again.cached == 0
    assert again.text == cold.text
