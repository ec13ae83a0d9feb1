"""A stream that fails after it has begun says so in the words of its dialect; so does a refusal before."""

import json
from contextlib import ExitStack
from typing import Any

import httpx

from leftoff.host.build import open_host
from leftoff.server.server import serving
from tests.server.fixtures import settings

MESSAGES = [{"role": "user", "content": "the sea"}]
ENDLESS: dict[str, dict[str, Any]] = {
    "/v1/messages": {"messages": MESSAGES, "stream": True},
    "/v1/responses": {"input": "the sea", "stream": True},
    "/api/chat": {"messages": MESSAGES},
}


def test_streams_that_run_when_the_engine_stops_are_told() -> None:
    with open_host(settings(ctx=1 << 16)) as host, serving(host) as url, ExitStack() as streams:
        running = {
            path: streams.enter_context(httpx.stream("POST", url + path, json=body)).iter_lines()
            for path, body in ENDLESS.items()
        }
        for lines in running.values():
            next(lines)
        host.stop()
        last = {path: [line for line in lines if line][-2:] for path, lines in running.items()}
        refused = {path: httpx.post(url + path, json=body) for path, body in ENDLESS.items()}
    anthropic, responses, ollama = last.values()
    problem = "the server is stopping: try again later"
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": problem}}
    assert anthropic[0] == "event: error"
    assert json.loads(anthropic[1].removeprefix("data: ")) == overloaded
    assert responses[0] == "event: response.failed"
    failed = json.loads(responses[1].removeprefix("data: "))["response"]
    assert (failed["status"], failed["error"]) == ("failed", {"code": "stopping", "message": problem})
    assert json.loads(ollama[-1]) == {"error": problem}
    assert [reply.status_code for reply in refused.values()] == [503] * 3
    assert refused["/v1/messages"].json() == overloaded
    assert refused["/api/chat"].json() == {"error": problem}
