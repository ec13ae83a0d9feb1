"""Many at once: none lost, mixed up or starved, and a queue that is full says so."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import httpx
import openai
import pytest

from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.server.server import serving
from tests.patience import PATIENCE_S, until
from tests.server.alike import NUM_TOP, Said, difference
from tests.server.fixtures import settings

NUM_CLIENTS = 100
NUM_TOKENS = 6
ROUNDING = 0.1  # what requests in one batch may move; another prompt moves the chances by whole units
WORDS = ("river", "hill", "town", "sea", "boat", "bridge", "rain", "water", "baker", "shop", "bread", "street")


def prompt(index: int) -> str:
    return f"{WORDS[index % 12]} {WORDS[index // 12 % 12]} the story of number {index}"


@pytest.fixture(scope="module")
def host() -> Iterator[ModelHost]:
    with open_host(settings(ctx=8192, slots=8)) as host:
        yield host


def alone(http: httpx.Client, index: int) -> Said:
    """The reply when nobody else asks, and nothing of the prompt is known."""
    body = {"prompt": prompt(index), "max_tokens": NUM_TOKENS, "temperature": 0, "logprobs": NUM_TOP}
    reply = http.post("/v1/completions", json=body | {"cache_salt": f"alone {index}"}).json()
    assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    logprobs = reply["choices"][0]["logprobs"]
    return Said(logprobs["tokens"], logprobs["top_logprobs"])


async def streamed(client: openai.AsyncOpenAI, index: int) -> Said:
    chunks = await client.completions.create(
        model="tiny", prompt=prompt(index), max_tokens=NUM_TOKENS, temperature=0, logprobs=NUM_TOP, stream=True
    )
    pieces = [logprobs async for chunk in chunks if (logprobs := chunk.choices[0].logprobs)]
    tokens = [token for piece in pieces for token in piece.tokens or ()]
    return Said(tokens, [top for piece in pieces for top in piece.top_logprobs or ()])


async def all_at_once(url: str) -> list[Said]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, timeout=PATIENCE_S) as client:
        return await asyncio.gather(*(streamed(client, index) for index in range(NUM_CLIENTS)))


def test_a_hundred_streams(host: ModelHost, http: httpx.Client, url: str) -> None:
    expected = [alone(http, index) for index in range(NUM_CLIENTS)]
    apart = [difference(one, other) > 10 * ROUNDING for one, other in pairwise(expected)]
    assert sum(apart) > NUM_CLIENTS // 2, "replies that can be told apart"
    host.log.forget()
    came = asyncio.run(all_at_once(url))
    assert [len(reply.tokens) for reply in came] == [NUM_TOKENS] * NUM_CLIENTS
    assert max(map(difference, came, expected)) < ROUNDING
    assert [record.finish for record in host.log.records] == ["length"] * NUM_CLIENTS
    host.call(host.cache.check_integrity).result()
    assert host.cache.ram.budget.used_bytes <= host.cache.ram.budget.budget_bytes


def test_a_full_queue_says_when_to_come_back() -> None:
    held = settings(ctx=1 << 16, slots=1, queue=1)
    with open_host(held) as host, serving(host) as url, httpx.Client(base_url=url) as http:
        body = {"prompt": "the sea", "max_tokens": 60_000, "stream": True, "temperature": 0}
        with http.stream("POST", "/completion", json=body) as running:
            lines = running.iter_lines()  # kept: a stream whose iterator goes is closed
            next(lines)
            reply = httpx.post(f"{url}/v1/completions", json={"prompt": ["a", "b", "c"], "max_tokens": 1})
            assert reply.status_code == 503
            assert int(reply.headers["retry-after"]) > 0
            assert reply.json()["error"]["code"] == "queue_full"
            streamed = httpx.post(f"{url}/completion", json={"prompt": ["a", "b", "c"], "stream": True})
            assert streamed.status_code == 503, "also before a stream begins"
        assert until(lambda: not host.scheduler.runs and not host.scheduler.num_waiting), "what was refused has left"
        assert httpx.post(f"{url}/v1/completions", json={"prompt": "a", "max_tokens": 1}).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
def test_a_server_that_ends_does_not_wait_for_ever(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leftoff.server.server._STOP_SECONDS", 0)
    body = {"prompt": "the sea", "max_tokens": 60_000, "stream": stream, "temperature": 0}
    with open_host(settings(ctx=1 << 16)) as host, ThreadPoolExecutor(1) as other:
        with serving(host) as url:
            reply = other.submit(httpx.post, f"{url}/v1/completions", json=body, timeout=PATIENCE_S)
            assert until(lambda: host.scheduler.runs or reply.done())
            assert not reply.done()
        assert '"code":"stopping"' in reply.result().text
        assert reply.result().status_code == (200 if stream else 503)


def test_streams_that_run_when_the_engine_stops_are_told() -> None:
    body = {"prompt": "the sea", "max_tokens": 1_000_000, "stream": True, "temperature": 0}
    with (
        open_host(settings(ctx=1 << 16)) as host,
        serving(host) as url,
        httpx.stream("POST", f"{url}/v1/completions", json=body) as running,
    ):
        lines = running.iter_lines()
        next(lines)
        host.stop()
        events = [line.removeprefix("data: ") for line in lines if line]
        assert events[-1] == "[DONE]"
        assert json.loads(events[-2])["error"]["code"] == "stopping"
        assert httpx.get(f"{url}/health").status_code == 503
        assert httpx.post(f"{url}/v1/completions", json={"prompt": "a"}).status_code == 503
        assert httpx.get(f"{url}/cache").status_code == 503
