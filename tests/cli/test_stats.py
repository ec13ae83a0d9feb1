"""`leftoff stats` asks a server that runs."""

import json

import httpx
import pytest

from leftoff.cli.main import main
from leftoff.host.build import open_host
from leftoff.server.server import serving
from tests.patience import PATIENCE_S
from tests.server.fixtures import settings

BODY = {"prompt": "where does the road end and who has built it", "max_tokens": 2, "temperature": 0}


def test_it_tells_what_each_client_was_spared(capsys: pytest.CaptureFixture[str]) -> None:
    with open_host(settings()) as host, serving(host) as url:
        assert main(["stats", "--url", url]) == 0
        empty = capsys.readouterr().out
        for _ in range(2):
            httpx.post(f"{url}/v1/completions", json=BODY, headers={"user-agent": "aider/1"}, timeout=PATIENCE_S)
        assert main(["stats", "--url", url]) == 0
        told = capsys.readouterr().out
        assert main(["stats", "--url", url, "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
    assert len(empty.splitlines()) == 1
    assert "0 tokens, 0.0 s" in empty
    (aider,) = answer["clients"]
    assert f"{aider['reused']:,} tokens" in told
    assert "aider" in told.splitlines()[-1]
    share = aider["reused"] / aider["prompt_tokens"]
    assert f"{share:.1%}" in told.splitlines()[-1]


def test_a_server_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", "--url", "http://127.0.0.1:9"]) == 1
    assert "is `leftoff serve` running there?" in capsys.readouterr().err
