"""leftoff against llama-server: the same library, model, threads and requests, in one run, turn by turn.

Both are asked by `/completion` with token ids, so that nothing but the serving differs. Figures are medians; a ratio
above 1 means that leftoff is the faster one, and is the median of all rounds' ratios, with its 95 % interval.
"""

import argparse
import asyncio
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import median
from tempfile import TemporaryDirectory

import httpx
import numpy as np
from rich.console import Console
from rich.table import Table

from leftoff.engine.model import Model


@dataclass(frozen=True)
class Measured:
    """What one stream showed, at the client."""

    first_token_ms: float
    num_tokens: int
    reply_ms: float

    @property
    def tokens_per_second(self) -> float:
        return 1000 * (self.num_tokens - 1) / self.reply_ms


@dataclass(frozen=True)
class Row:
    name: str
    unit: str
    leftoff: float
    peer: float
    ratio: float
    interval: tuple[float, float]


class Client:
    """One server, asked over HTTP."""

    def __init__(self, url: str) -> None:
        # llama-server closes idle connections after seconds, just when the next request may be on its way
        self._http = httpx.AsyncClient(base_url=url, timeout=600, limits=httpx.Limits(max_keepalive_connections=0))
        self.history: list[int] = []

    async def complete(self, tokens: list[int], num_reply: int) -> Measured:
        body = {
            "prompt": tokens,
            "n_predict": num_reply,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "cache_prompt": True,
        }
        began = time.perf_counter()
        first = last = 0.0
        count = 0
        async with self._http.stream("POST", "/completion", json=body) as response:
            assert response.status_code == 200, await response.aread()
            async for line in response.aiter_lines():
                if not line.startswith("data: "):
                    continue
                last = time.perf_counter()
                first = first or last
                count += 1
        return Measured(1000 * (first - began), max(2, min(count, num_reply)), max(1e-3, 1000 * (last - first)))


class Prompts:
    """Random token ids, new ones for every question: nothing is known that was not meant to be."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._rng = np.random.default_rng(7)

    def new(self, num_tokens: int) -> list[int]:
        tokens: list[int] = self._rng.integers(100, self._size - 100, num_tokens).tolist()
        return tokens


Probe = Callable[[Client, Prompts], Coroutine[None, None, float]]


async def decode_rate(client: Client, prompts: Prompts) -> float:
    return (await client.complete(prompts.new(32), 192)).tokens_per_second


async def prefill_rate(client: Client, prompts: Prompts) -> float:
    return 1000 * 3000 / (await client.complete(prompts.new(3000), 2)).first_token_ms


async def parallel_rate(client: Client, prompts: Prompts) -> float:
    began = time.perf_counter()
    replies = await asyncio.gather(*(client.complete(prompts.new(32), 96) for _ in range(4)))
    return sum(reply.num_tokens for reply in replies) / (time.perf_counter() - began)


async def warm_first_token(client: Client, prompts: Prompts) -> float:
    """A turn after 6,000 tokens of history, as 1000 / ms so that more is better."""
    if not client.history:
        client.history = prompts.new(6000)
        await client.complete(client.history, 2)
    return 1000 / (await client.complete(client.history + prompts.new(40), 2)).first_token_ms


PROBES: dict[str, tuple[str, Probe]] = {
    "decode, one stream": ("tokens/s", decode_rate),
    "decode, four streams": ("tokens/s", parallel_rate),
    "prefill of 3,000": ("tokens/s", prefill_rate),
    "first token after 6,000 known": ("1/s", warm_first_token),
}


@contextmanager
def started(command: list[str], marker: str) -> Iterator[str]:
    """A server process; its URL is read off its output."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    try:
        line = next(line for line in process.stdout if marker in line)
        url = next(word for word in line.split() if word.startswith("http") or ":" in word)
        yield url if url.startswith("http") else f"http://{url}"
    finally:
        process.kill()
        process.wait()


async def compare(ours: str, theirs: str, vocabulary_size: int, rounds: int) -> list[Row]:
    prompts = Prompts(vocabulary_size)
    clients = (Client(ours), Client(theirs))
    return [await row(name, unit, probe, clients, prompts, rounds) for name, (unit, probe) in PROBES.items()]


async def row(name: str, unit: str, probe: Probe, clients: tuple[Client, Client], prompts: Prompts, rounds: int) -> Row:
    seen: list[dict[Client, float]] = []
    for index in range(rounds + 1):  # A B B A, so that none always comes after the other
        order = clients if index % 2 else clients[::-1]
        seen.append({client: await probe(client, prompts) for client in order})
    left, right = ([figures[client] for figures in seen[1:]] for client in clients)  # the first one only warms up
    ratios = sorted(mine / other for mine, other in zip(left, right, strict=True))
    return Row(name, unit, median(left), median(right), median(ratios), median_interval(ratios))


def median_interval(rising: Sequence[float]) -> tuple[float, float]:
    """Where the true median lies with 95 %: as many are above it as below, but for the luck of so many coins."""
    outside = max(0, int((len(rising) - 1.96 * math.sqrt(len(rising))) / 2))
    return rising[outside], rising[-1 - outside]


def show(rows: list[Row]) -> None:
    table = Table("", "leftoff", "llama-server", "ratio", "95 %")
    for row in rows:
        figures = (f"{row.leftoff:,.1f} {row.unit}", f"{row.peer:,.1f} {row.unit}")
        table.add_row(row.name, *figures, f"{row.ratio:.2f}", "{:.2f} … {:.2f}".format(*row.interval))
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    common = [arguments.model, "--slots", "4", "--ctx", "16384", "--threads", str(arguments.threads)]
    leftoff = [sys.executable, "-m", "leftoff", "serve", *common, "--port", "0"]
    model = Model(arguments.model)
    vocabulary_size = model.vocabulary.size
    model.close()
    with (
        TemporaryDirectory() as folder,  # else the prompts of an earlier run are found on disk
        started([*leftoff, "--cache-dir", folder], "http://") as ours,
        started([sys.executable, "-m", "lab.bench.peer", *common], "URL") as theirs,
    ):
        rows = asyncio.run(compare(ours, theirs, vocabulary_size, arguments.rounds))
    if arguments.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        show(rows)


if __name__ == "__main__":
    main()
