"""Tokens per second of several replies at once, greedy and sampled: both servers are up, and measured in turn."""

import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

from lab.bench.completion import SAMPLED
from lab.gpu import goals
from lab.gpu.record import Series
from lab.gpu.rig import Rig, Server

PARTS = ("decode", "sampled")
_STREAMS = (1, 8, 16)
_ROUNDS = 3
_PROMPT, _REPLY, _WARM_UP = 64, 96, 8


def measure(rig: Rig, wanted: Collection[str]) -> None:
    """The rate counts from the first request to the last token, the short prompts included."""
    rig.record.say(f"decode: both servers with {max(_STREAMS)} slots, {_ROUNDS} rounds in turn")
    with rig.both(max(_STREAMS)) as servers:
        for server in servers:
            rate(server, max(_STREAMS), "warm-up", None, _WARM_UP)
        for part in [part for part in PARTS if part in wanted]:
            for num_streams in _STREAMS:
                _compare(rig, servers, part, num_streams)


def _compare(rig: Rig, servers: tuple[Server, Server], part: str, num_streams: int) -> None:
    sampling = SAMPLED if part == "sampled" else None
    rates: dict[str, list[float]] = {server.name: [] for server in servers}
    for number in range(_ROUNDS):
        for server in servers if number % 2 == 0 else servers[::-1]:
            name = f"{part} {num_streams} {number}"
            rates[server.name].append(rate(server, num_streams, name, sampling))
    ours, theirs = (Series(tuple(rates[server.name])) for server in servers)
    how = "sampled" if sampling else "greedy"
    goal = (goals.SAMPLED if sampling else goals.DECODE).get(num_streams)
    count = "1 stream" if num_streams == 1 else f"{num_streams} streams"
    rig.record.add(part, f"decode, {how}, {count}", "tok/s", ours, theirs, goal)


def rate(
    server: Server, num_streams: int, name: str, sampling: dict[str, float] | None = None, num_reply: int = _REPLY
) -> float:
    """Tokens per second of greedy replies, or sampled ones, to prompts that nobody has seen."""
    prompts = [server.prompts.tokens(f"{name} {stream}", _PROMPT) for stream in range(num_streams)]
    with ThreadPoolExecutor(num_streams) as pool:
        began = time.perf_counter()
        replies = list(pool.map(lambda prompt: server.ask(prompt, num_reply, sampling), prompts))
        return sum(reply.generated for reply in replies) / (time.perf_counter() - began)
