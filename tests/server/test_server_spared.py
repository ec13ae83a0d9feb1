"""What was spared since the start, once a day in the log. tests/cli/test_serve.py has the end of a server."""

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


def test_it_is_logged_once_a_day_if_anybody_has_asked(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "leftoff.requests")
    with open_host(settings(port=0)) as host:
        server = Server(Hosts(host), host.settings)
        try:
            asyncio.run(server.on_tick(0))
            assert caplog.messages == []
            with serving(host) as url:
                httpx.post(f"{url}/v1/completions", json=BODY, timeout=PATIENCE_S).raise_for_status()
            caplog.clear()
            for tick in range(20):
                asyncio.run(server.on_tick(tick))
            assert [message.partition(":")[0] for message in caplog.messages] == ["spared since the start"]
        finally:
            server.close()
