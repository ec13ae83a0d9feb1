"""leftoff against llama-server: the same library, model, threads and requests, in one run, turn by turn.

Both are asked by `/completion` with token ids, so that nothing but the serving differs. Figures are medians; a ratio
above 1 means that leftoff is the faster one, and is the median of all rounds' ratios, with its 95 % interval.
"""

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass
from statistics import median
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from lab.bench.completion import Prompts, complete
from lab.bench.process import Process
from leftoff.engine.model import Model

_STREAMS = 4


@dataclass(frozen=True)
class Row:
    name: str
    unit: str
    leftoff: float
    peer: float
    ratio: float
    interval: tuple[float, float]


Probe = Callable[[str, Prompts, int], float]  # of a server's URL, in a round: each has prompts of its own


def decode_rate(url: str, prompts: Prompts, number: int) -> float:
    reply = complete(url, prompts.tokens(f"decode {number}", 32), 192)
    return 1000 * (reply.generated - 1) / reply.reply_ms


def prefill_rate(url: str, prompts: Prompts, number: int) -> float:
    return 1000 * 3000 / complete(url, prompts.tokens(f"prefill {number}", 3000), 2).first_token_ms


def parallel_rate(url: str, prompts: Prompts, number: int) -> float:
    asked = [prompts.tokens(f"stream {stream} {number}", 32) for stream in range(_STREAMS)]
    with ThreadPoolExecutor(_STREAMS) as pool:
        began = time.perf_counter()
        replies = list(pool.map(lambda prompt: complete(url, prompt, 96), asked))
        return sum(reply.generated for reply in replies) / (time.perf_counter() - began)


def warm_first_token(url: str, prompts: Prompts, number: int) -> float:
    """A turn after 6,000 tokens of history, as 1000 / ms so that more is better."""
    history = prompts.tokens("history", 6000)
    if number == 0:
        complete(url, history, 2)
    return 1000 / complete(url, history + prompts.tokens(f"turn {number}", 40), 2).first_token_ms


PROBES: dict[str, tuple[str, Probe]] = {
    "decode, one stream": ("tokens/s", decode_rate),
    "decode, four streams": ("tokens/s", parallel_rate),
    "prefill of 3,000": ("tokens/s", prefill_rate),
    "first token after 6,000 known": ("1/s", warm_first_token),
}


def compare(ours: str, theirs: str, prompts: Prompts, rounds: int) -> list[Row]:
    """Two servers, by their URLs."""
    return [row(name, unit, probe, (ours, theirs), prompts, rounds) for name, (unit, probe) in PROBES.items()]


def row(name: str, unit: str, probe: Probe, urls: tuple[str, str], prompts: Prompts, rounds: int) -> Row:
    seen: list[dict[str, float]] = []
    for number in range(rounds + 1):  # A B B A, so that none always comes after the other
        order = urls if number % 2 else urls[::-1]
        seen.append({url: probe(url, prompts, number) for url in order})
    left, right = ([figures[url] for figures in seen[1:]] for url in urls)  # the first one only warms up
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
    prompts = Prompts(model.vocabulary.size)
    model.close()
    with (
        TemporaryDirectory() as folder,  # else the prompts of an earlier run are found on disk
        closing(Process([*leftoff, "--cache-dir", folder])) as ours,
        closing(Process([sys.executable, "-m", "lab.bench.peer", *common])) as theirs,
    ):
        rows = compare(ours.url, theirs.url, prompts, arguments.rounds)
    if arguments.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        show(rows)


if __name__ == "__main__":
    main()
