"""`python -m lab.speed.router` measures the router: how long a decision takes, and what it adds to the first token.

Decisions are made by the router's own code over a real index, which holds 8 replicas with the resume points of 1,000
conversations. The first token is that of a real server, asked in turn directly and through `leftoff route`.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

import httpx
import numpy as np
from redis import Redis
from redis.exceptions import ConnectionError as UnreachableError

from lab.bench.port import free_port
from lab.bench.process import Process
from leftoff.cluster.chain import Chain, read_chain
from leftoff.cluster.fleet import Fleet
from leftoff.cluster.index import IndexFollower
from leftoff.cluster.replica import Held, Load, Rates, Replica, ReplicaState, encode
from leftoff.cluster.router import Router
from leftoff.hub.reference import default_model
from leftoff.server.reply.points import AT_HEADER, Point, PromptPoints
from leftoff.store.keys import NUMBER, REPLICAS, Keys, replica_key

_FINGERPRINT = "speed"
_NUM_REPLICAS, _NUM_CONVERSATIONS, _NUM_TURNS = 8, 1000, 8
_NUM_DECISIONS = 4000
_MESSAGE = "some words of a message that is neither short nor long " * 8
_HEADER = "a system prompt with all its tools " * 200
_NUM_ASKED = 60


@dataclass(frozen=True)
class Times:
    """Milliseconds."""

    p50: float
    p99: float

    @classmethod
    def of(cls, seconds: list[float]) -> "Times":
        p50, p99 = np.percentile(np.array(seconds) * 1000, [50, 99])
        return cls(float(p50), float(p99))


def main() -> int:
    """Prints both measurements."""
    with index_server() as url:
        decision, computing = asyncio.run(decisions(url))
    print(
        f"decision, {_NUM_CONVERSATIONS:,} conversations and {_NUM_REPLICAS} replicas:"
        f" p50 {decision.p50:.2f} ms, p99 {decision.p99:.2f} ms;"
        f" without what other processes take of this machine: p50 {computing.p50:.2f} ms, p99 {computing.p99:.2f} ms"
    )
    straight, through = first_tokens()
    print(f"first token: {straight.p50:.2f} ms directly, {through.p50:.2f} ms through the router (p50)")
    print(f"the router adds {through.p50 - straight.p50:.2f} ms")
    return 0


@contextmanager
def index_server() -> Iterator[str]:
    """A redis-server of the system."""
    port = free_port()
    process = subprocess.Popen(["redis-server", "--port", str(port), "--save", ""], stdout=subprocess.DEVNULL)
    url = f"redis://127.0.0.1:{port}/0"
    try:
        while not _answers(url):
            time.sleep(0.02)
        yield url
    finally:
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    with suppress(UnreachableError), Redis.from_url(url) as redis:
        return bool(redis.ping())
    return False


# --- decisions


async def decisions(url: str) -> tuple[Times, Times]:
    """How long the router takes to choose, for conversations that go on in any order: by the clock, and computing."""
    fill(url)
    fleet = Fleet()
    index = IndexFollower(url, fleet)
    index.start()
    while len(fleet.views) < _NUM_REPLICAS or any(view.number is None for view in fleet.views.values()):
        await asyncio.sleep(0.05)
    router, rng = Router(fleet, index), np.random.default_rng(1)
    seconds: list[float] = []
    cpu_seconds: list[float] = []
    for number in range(_NUM_CONVERSATIONS):
        choice = await router.choose(read_chain(body(number, _NUM_TURNS), {}))
        router.learn(choice.chain, points(number, choice.chain))
    for number in rng.integers(_NUM_CONVERSATIONS, size=_NUM_DECISIONS).tolist():
        asked = body(number, _NUM_TURNS + 1)
        began, computing = time.perf_counter(), time.thread_time()
        chain = read_chain(asked, {})
        choice = await router.choose(chain)
        seconds.append(time.perf_counter() - began)
        cpu_seconds.append(time.thread_time() - computing)
        flight = choice.view.send(choice.chain, choice.estimate.work_ms)
        choice.view.begun(flight)
        choice.view.ended(flight)
    await index.close()
    return Times.of(seconds), Times.of(cpu_seconds)


def body(number: int, num_turns: int) -> bytes:
    """The request of one turn of a conversation."""
    said = [
        {"role": ("user", "assistant")[turn % 2], "content": f"{number} {turn} {_MESSAGE}"}
        for turn in range(2 * num_turns + 1)
    ]
    return json.dumps({"messages": [{"role": "system", "content": _HEADER}, *said]}).encode()


def points(number: int, chain: Chain) -> PromptPoints:
    """As a replica tells them: the header, and the ends of the last messages."""
    last = len(chain.keys) - 2
    ends = [Point(last - turn, 1400 + 100 * turn, tag(number, turn)) for turn in range(last + 1)]
    return PromptPoints(ends[-1].position, [Point(AT_HEADER, 1400, b"h" * 16), *ends])


def tag(number: int, turn: int) -> bytes:
    return b"%08d%08d" % (number, turn)


def fill(url: str) -> None:
    """Heartbeats of the replicas, and what each holds: an eighth of all conversations, and the header."""
    redis, keys = Redis.from_url(url), Keys(_FINGERPRINT)
    rates = Rates(1.0, 20.0, 200.0, 4e6, 0.2, 5e5, 1.0, 1e5, 20.0)
    for replica in range(_NUM_REPLICAS):
        name = f"replica-{replica}"
        load = Load(8, 0, 0, 64, 0, 1 << 20)
        beat = Replica(
            name, f"http://{name}", _FINGERPRINT, "tiny", "", "", ReplicaState.READY, 1, load, rates, has_store=True
        )
        held = [Held(b"h" * 16, b"", 1400, 30_000_000, 0)]
        for number in range(replica, _NUM_CONVERSATIONS, _NUM_REPLICAS):
            held += [Held(tag(number, turn), b"", 1400 + 100 * turn, 30_000_000, 0) for turn in range(2 * _NUM_TURNS)]
        redis.zadd(REPLICAS, {name: 1.0})
        redis.set(replica_key(name), encode(beat))
        redis.hset(keys.held(name), mapping={**{each.tag: encode(each) for each in held}, NUMBER: b"1"})


# --- first token


def first_tokens() -> tuple[Times, Times]:
    """The times to a first token of a server that is asked directly, and through the router, in turn."""
    serve = (sys.executable, "-m", "leftoff", "serve", str(default_model()))
    with ExitStack() as closing:
        server = Process([*serve, "--port", "0", "--threads", "1", "--disk", "0", "--ram", "128"])
        closing.callback(server.close)
        route = Process([sys.executable, "-m", "leftoff", "route", "--port", "0", "--replica", server.url])
        closing.callback(route.close)
        clients = [closing.enter_context(httpx.Client(base_url=each.url, timeout=60)) for each in (server, route)]
        for client in clients * 3:
            first_token_s(client)
        seconds = [[first_token_s(client) for client in clients] for _ in range(_NUM_ASKED)]
    straight, through = zip(*seconds, strict=True)
    return Times.of([*straight]), Times.of([*through])


def first_token_s(client: httpx.Client) -> float:
    asked = {"messages": [{"role": "user", "content": "Hello"}], "stream": True, "max_tokens": 1}
    began = time.perf_counter()
    with client.stream("POST", "/v1/chat/completions", json=asked) as answer:
        chunks = answer.iter_raw()
        next(chunks)
        took = time.perf_counter() - began
        for _ in chunks:
            pass
    return took


if __name__ == "__main__":
    sys.exit(main())
