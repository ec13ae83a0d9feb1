"""A hub on this machine, which all that is downloaded comes from."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hubs import LocalHub, serving_hub

SETTINGS = ("HF_TOKEN", "HF_HUB_CACHE", "HF_TOKEN_PATH", "HTTP_PROXY", "http_proxy")


@pytest.fixture
def local_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LocalHub]:
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    with serving_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub
