"""How much faster replies come with drafts: leftoff with and without, and llama-server with its own n-gram drafts.

All have the same model, threads and requests, in one run, in turns. The figure is the rate of a reply after its first
token; a ratio is the median over all rounds. With LEFTOFF_LIBLLAMA set, leftoff uses another build of llama.cpp than
the llama-server here, which is then left out.
"""

import argparse
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterable
from contextlib import ExitStack, closing
from statistics import median

from rich.console import Console
from rich.table import Table

from lab.bench.completion import stream
from lab.bench.process import Process
from lab.speed.agent_work import Work, agent_work, nothing_to_repeat
from leftoff.hub.reference import default_model

OFF, ON, PEER = "leftoff --draft off", "leftoff", "llama-server"
Rates = dict[str, list[float]]  # by side


def rate(url: str, work: Work) -> float:
    """Tokens per second after the first. Raises ValueError if the reply is not the one wanted."""
    fixed = {"n_predict": 4096, "temperature": 0, "cache_prompt": True, "stream": True}
    _, came = stream(url, json.dumps({"prompt": work.prompt, "grammar": work.grammar, **fixed}).encode())
    events = [json.loads(line.removeprefix(b"data: ")) for _, line in came]
    text = "".join(event.get("content", "") for event in events)
    if text.strip() != work.reply.strip():
        raise ValueError(f"{work.task}: another reply came: {text[-80:]!r}")
    num_tokens = int(events[-1]["timings"]["predicted_n"])
    return (num_tokens - 1) / (came[-1][0] - came[0][0])


def play(sides: dict[str, str], works: Iterable[Work], found: dict[str, Rates], number: int) -> None:
    """Asks each side in turn, in every other round the last one first. The first branch only makes a task known."""
    seen: set[str] = set()
    for work in works:
        for side in sorted(sides, reverse=number % 2 == 1):
            figure = rate(sides[side], work)
            if work.task != "a second branch" or work.task in seen:
                found[work.task][side].append(figure)
        seen.add(work.task)


def ratios(rates: Rates, side: str, base: str) -> float:
    return median(mine / other for mine, other in zip(rates[side], rates[base], strict=True))


def show(found: dict[str, Rates], sides: Iterable[str]) -> None:
    others = [side for side in sides if side != OFF]
    table = Table("tokens/s", *sides, *(f"{side} ÷ without" for side in others))
    for task, rates in found.items():
        gains = [f"{ratios(rates, side, OFF):.2f}" for side in others]
        table.add_row(task, *(f"{median(rates[side]):.0f}" for side in sides), *gains)
    Console(width=120).print(table)
    work = [rates for task, rates in found.items() if task != "nothing to repeat"]
    for side in others:
        gain = median(ratios(rates, side, OFF) for rates in work)
        print(f"{side}: {gain:.2f} times the rate without, median over the work of agents")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default=str(default_model()))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    common = [arguments.model, "--slots", "4", "--ctx", "16384", "--threads", str(arguments.threads)]
    leftoff = [sys.executable, "-m", "leftoff", "serve", *common, "--port", "0", "--disk", "0"]
    commands = {OFF: [*leftoff, "--draft", "off"], ON: leftoff}
    if "LEFTOFF_LIBLLAMA" not in os.environ:
        commands[PEER] = [sys.executable, "-m", "lab.bench.peer", *common, "--ngram"]
    found: dict[str, Rates] = defaultdict(lambda: defaultdict(list))
    with ExitStack() as stack:
        sides = {side: stack.enter_context(closing(Process(command))).url for side, command in commands.items()}
        for number in range(arguments.rounds):
            play(
                sides, [*agent_work(number), *map(nothing_to_repeat, range(3 * number, 3 * number + 3))], found, number
            )
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        show(found, commands)


if __name__ == "__main__":
    main()
