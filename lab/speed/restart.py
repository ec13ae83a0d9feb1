"""How long a conversation waits for its first token: resumed from RAM, resumed from disk after a restart, and cold.

One conversation, three servers in turn, round by round; figures are medians. The file cache of the system is warm, as
it is after a restart of the server alone.
"""

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from leftoff.config import Settings
from leftoff.engine.model import Model
from leftoff.host.build import make_scheduler
from leftoff.hub.reference import default_model
from leftoff.scheduler.job import Job
from leftoff.scheduler.run import Run
from leftoff.scheduler.scheduler import Scheduler
from leftoff.types import Prompt, Tokens
from tests.scheduler.recorder import Recorder, run


@dataclass(frozen=True)
class Resumed:
    first_token_ms: float
    computed: int
    source: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default=str(default_model()))
    parser.add_argument("--tokens", type=int, default=7000)
    parser.add_argument("--new", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(model=args.model, cache_dir=folder, slots=1, ctx=args.tokens + 1024)
        rounds = [_round(settings, args.tokens, args.new, seed) for seed in range(args.rounds)]
    _show(rounds)


def _round(settings: Settings, num_tokens: int, num_new: int, seed: int) -> dict[str, Resumed]:
    rng = np.random.default_rng(seed)
    model = Model(settings.model)
    size = model.vocabulary.size
    told, new = (rng.integers(300, size - 300, count, np.int32) for count in (num_tokens, num_new))
    prompt = np.concatenate([told, new])
    first = make_scheduler(model, settings)
    cold = _ask(first, told)
    _ask(first, rng.integers(300, size - 300, 32, np.int32))  # the slot is needed for something else
    from_ram = _ask(first, prompt)
    _close(first)
    second = make_scheduler(Model(settings.model), settings)
    _ask(second, rng.integers(300, size - 300, 32, np.int32))  # both have answered something before
    from_disk = _ask(second, np.concatenate([told, rng.permutation(new)]))
    second.cache.clear()
    _close(second)
    return {"cold": cold, "RAM": from_ram, "disk": from_disk}


def _ask(scheduler: Scheduler, tokens: Tokens) -> Resumed:
    recorder = Recorder()
    began = time.perf_counter()
    scheduler.submit(Run(Job(Prompt(tokens), max_tokens=1), recorder))
    run(scheduler)
    elapsed = 1000 * (time.perf_counter() - began)
    scheduler.cache.save_idle()
    assert recorder.report is not None
    return Resumed(elapsed, recorder.report.computed, recorder.report.source)


def _close(scheduler: Scheduler) -> None:
    scheduler.cache.close(30.0)
    scheduler.engine.close()


def _show(rounds: list[dict[str, Resumed]]) -> None:
    table = Table("resumed from", "first token ms", "spread", "computed", "against RAM")
    in_ram = statistics.median(one["RAM"].first_token_ms for one in rounds)
    for name in ("cold", "RAM", "disk"):
        times = sorted(one[name].first_token_ms for one in rounds)
        median = statistics.median(times)
        computed = statistics.median(one[name].computed for one in rounds)
        spread = f"{times[0]:.0f} … {times[-1]:.0f}"
        table.add_row(name, f"{median:.1f}", spread, f"{computed:.0f}", f"{median / in_ram:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
