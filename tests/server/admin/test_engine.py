"""What /engine tells of the settings."""

from dataclasses import replace

import httpx
import pytest

from leftoff.host.host import ModelHost
from tests.cli.running import serving


def test_no_key_and_no_password_is_told(host: ModelHost, http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = replace(host.settings, index="redis://me:secret@localhost:6379/0", otel="http://localhost:4318")
    monkeypatch.setattr(host, "settings", changed)
    answer = http.get("/engine")
    told = answer.json()["settings"]
    assert (told["index"], told["otel"]) == ("redis://localhost:6379/0", "http://localhost:4318")
    assert told["ctx"] == host.settings.ctx
    assert "secret" not in answer.text
    assert "api-key" not in told


def test_what_the_server_has_chosen_itself_is_not_told_as_given() -> None:
    with serving("--ctx", "0", "--disk", "0", model="") as server:
        told = httpx.get(f"{server.url}/engine").json()["settings"]
    assert {"port", "threads", "ram", "slots"} <= {*told}
    assert {"ctx", "model", "alias"}.isdisjoint(told)
