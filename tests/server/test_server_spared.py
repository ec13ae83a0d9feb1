"""What was spared since the start: in the log when the server ends, and once a day."""

import asyncio
import logging

import httpx
import pytest

from leftoff.host.build import open_host
from leftoff.server.hosts import Hosts
from leftoff.server.server import Server, serving
from tests.patience import PATIENCE_S
from tests.server.fixtures import settings

BODY = {"prompt": "where does the road end and who has built it", "max_tokens": 2, "temperature": 0}


def ask(url: str, key: str) -> None:
    headers = {"authorization": f"Bearer {key}"}
    httpx.post(f"{url}/v1/completions", json=BODY, headers=headers, timeout=PATIENCE_S).raise_for_status()


def test_it_is_logged_when_the_server_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "leftoff.requests")
    with open_host(settings(api_key=("one", "two"))) as host, serving(host) as url:
        for key in ("one", "one", "two"):
            ask(url, key)
        records = host.log.records
    line, fields = caplog.messages[-1], caplog.records[-1].__dict__["fields"]
    reused, total = (sum(getattr(each, name) for each in records) for name in ("reused", "prompt_tokens"))
    assert line.startswith(f"spared since the start: {reused:,} tokens, ")
    assert line.endswith(f"of {total:,} tokens in 3 requests")
    assert fields["spared"]["saved_ms"] == pytest.approx(sum(each.saved_ms for each in records), abs=0.01)
    assert reused > 0


def test_it_is_logged_once_a_day_if_anybody_has_asked(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "leftoff.requests")
    with open_host(settings(port=0)) as host:
        server = Server(Hosts(host), host.settings)
        try:
            asyncio.run(server.on_tick(0))
            assert caplog.messages == []
            with serving(host) as url:
                ask(url, "none")
            caplog.clear()
            for tick in range(20):
                asyncio.run(server.on_tick(tick))
            assert [message.partition(":")[0] for message in caplog.messages] == ["spared since the start"]
        finally:
            server.close()
