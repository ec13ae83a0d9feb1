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

from leftoff.api.server import serving
from leftoff.api.service import Service
from leftoff.api.tenant import Tenant
from leftoff.cli.main import main
from tests.api.conftest import settings

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
        Service(settings("llama", **changes)) as service,
        serving(service) as url,
        httpx.Client(base_url=url, timeout=60) as http,
    ):
        yield http


def test_names_on_disk_tell_nothing_of_keys_and_salts(tmp_path: Path) -> None:
    names = []
    for root in (tmp_path / "here", tmp_path / "there"):
        with server(root, ONE, TWO) as http:
            chat(http, ONE)
            chat(http, TWO, cache_salt="salt")
            tree = http.get("/cache", headers=bearer(ONE)).json()["trees"][0]
        names += [namespaces_on_disk(root)]
        assert tree["namespace"] in names[-1]
    assert names[0].isdisjoint(names[1]), "another folder has another secret"
    for name in names[0] | names[1]:
        assert not any(
            part and unkeyed(text).startswith(part) for part in name.split("/") for text in (ONE, TWO, "salt")
        )


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
            names.add(http.get("/cache", headers=bearer(ONE)).json()["trees"][0]["namespace"])
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
