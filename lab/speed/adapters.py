"""What adapters cost: replies to the model alone, and to the model and two adapters in turn, at the same time.

    python -m lab.speed.adapters [MODEL] [--clients 8] [--rounds 5] [--reply 128]

Every client asks anew as soon as it has its reply, and takes the next set for it. Rounds are taken in turns; a ratio is
the median over them, by wall and by CPU time. A batch has one set: what groups of fewer replies cost is told beside it,
since no order of turns can do better than that.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from lab.speed.scripted import Reply
from leftoff.adapters import NO_ADAPTERS, Adapter, AdapterSet
from leftoff.cache.cache import Cache
from leftoff.engine.adapter_file import read_lora
from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.host.build import measured_costs
from leftoff.scheduler.job import Job
from leftoff.scheduler.run import Run
from leftoff.scheduler.scheduler import Scheduler
from leftoff.types import Prompt
from tests.factory import Scale, model_path, small_vocabulary
from tests.factory.adapters import lora_path

_PROMPT = 64
_NUM_REPLIES = 3  # of each client
_NUM_TIMED = 15


@dataclass
class Client(Reply):
    """A client that notes when its tokens came."""

    times: list[float] = field(default_factory=list)

    def token(self, *arguments: object) -> bool:
        self.times.append(time.perf_counter())
        return super().token(*arguments)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Played:
    """All replies of a round. `longest_s` is the longest that a client waited between two tokens."""

    wall_s: float
    cpu_s: float
    longest_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, default=model_path("llama", Scale(width=4, depth=3)))
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--reply", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    model: Path = arguments.model
    files = [read_lora(lora_path(model, seed), model, 1 << 20) for seed in (1, 2)]
    num_cells = arguments.clients * (_PROMPT + arguments.reply + 64)
    settings = ContextSettings(num_cells, arguments.clients, threads=arguments.threads, loras=tuple(files))
    sets = [NO_ADAPTERS, *(AdapterSet.of([Adapter(file.fingerprint)]) for file in files)]
    with LlamaEngine.open(model, settings) as engine:
        _tell_groups(engine, arguments.clients)
        cache = Cache(engine.memory, num_slots=arguments.clients, budget_bytes=1 << 28, costs=measured_costs(engine))
        scheduler = Scheduler(engine, cache)
        rounds, rng = [], np.random.default_rng(1)
        for number in range(arguments.rounds + 1):
            turns = [sets[:1], sets][:: 1 if number % 2 else -1]
            took = {len(each): _play(scheduler, each, arguments.clients, arguments.reply, rng) for each in turns}
            rounds.append((took[1], took[3]))
    wall, cpu = (
        [getattr(base, name) / getattr(mixed, name) for base, mixed in rounds[1:]] for name in ("wall_s", "cpu_s")
    )
    print(f"tokens a second, of those of the model alone: {median(wall):.2f} by wall, {median(cpu):.2f} by CPU time")
    longest = [median(each.longest_s for each in of) for of in zip(*rounds[1:], strict=True)]
    print(f"longest wait for a token: {1000 * longest[0]:.0f} ms alone, {1000 * longest[1]:.0f} ms in turn")


def _tell_groups(engine: LlamaEngine, num_clients: int) -> None:
    """A batch of a token of each client, and three of a third of them."""
    tokens = np.full(1, small_vocabulary().words[0], np.int32)
    sizes = [num_clients // 3 + (number < num_clients % 3) for number in range(3)]

    def cpu_ms(*groups: int) -> float:
        took = []
        for _ in range(_NUM_TIMED):
            began = time.process_time()
            for size in groups:
                engine.decode([Work(seq, tokens) for seq in range(size)])
            took.append(1000 * (time.process_time() - began))
        return median(took)

    at_once, apart = cpu_ms(num_clients), cpu_ms(*sizes)
    engine.memory.clear()
    print(f"{num_clients} tokens in one batch take {at_once:.1f} ms of CPU time, in three {apart:.1f}: ", end="")
    print(f"{at_once / apart:.2f} at best")


def _play(
    scheduler: Scheduler, sets: Sequence[AdapterSet], num_clients: int, reply_tokens: int, rng: np.random.Generator
) -> Played:
    asked = [0] * num_clients
    replies: list[Client] = []
    running: dict[int, Client] = {}
    wall, cpu = time.perf_counter(), time.process_time()
    while True:
        for number in range(num_clients):
            if (number not in running or running[number].timings.finished) and asked[number] < _NUM_REPLIES:
                running[number] = client = Client()
                replies.append(client)
                tokens = rng.choice(small_vocabulary().words, _PROMPT).astype(np.int32)
                prompt = Prompt(tokens).adapted(sets[(number + asked[number]) % len(sets)])
                scheduler.submit(Run(Job(prompt, max_tokens=reply_tokens, ignore_end=True), client))
                asked[number] += 1
        if not scheduler.step():
            break
    took = Played(
        time.perf_counter() - wall,
        time.process_time() - cpu,
        max(float(np.diff(reply.times).max()) for reply in replies),
    )
    for reply in replies:
        if reply.error is not None:
            raise reply.error
    return took


if __name__ == "__main__":
    main()
