"""Draft models beside a random model, in one process: one is right by construction, one is always wrong.

Replies with and without drafts come from the same engine, in turns: two engines of one model differ by up to 3 % on a
GPU, and one engine does from one minute to the next.

After its first layers those of the model add nothing, but are computed all the same. The draft model has these first
layers alone: so it says what the model says, in a part of the time. The wrong one says the token after that.
"""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from lab.gpu.random_model import write_random_model
from lab.gpu.shapes import shape
from lab.speed.scripted import Reply as Sink
from leftoff.cache.cache import Cache
from leftoff.drafts.batch_times import BatchTimes
from leftoff.drafts.draft_model import DraftModel
from leftoff.drafts.drafter import Drafter
from leftoff.drafts.guesses import Guesses, Reply
from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.measure import measure_batches, measure_change
from leftoff.engine.model import Model
from leftoff.host.build import measured_costs
from leftoff.scheduler.job import Job
from leftoff.scheduler.run import Run
from leftoff.scheduler.scheduler import Scheduler
from leftoff.types import Prompt, Tokens
from tests.factory import small_vocabulary

KINDS = ("dense", "hybrid")
_ACTIVE = {"dense": 2, "hybrid": 4}  # layers
_PROMPT, _REPLY = 1024, 384
_SETTINGS = ContextSettings(num_cells=4096, num_sequences=1)


class AlwaysWrong(DraftModel):
    """As fast as the right one."""

    def guess(self, reply: Reply, most: int) -> list[int]:
        return [(token + 1) % self._num_tokens for token in super().guess(reply, most)]


class Played(NamedTuple):
    """One reply."""

    tokens_per_s: float
    num_drafted: int
    num_accepted: int


class Pair(NamedTuple):
    """Two schedulers over one engine and its cache."""

    alone: Scheduler
    drafting: Scheduler


def measure(folder: Path, kind: str, size: str, rounds: int) -> int:
    """Prints a line for each draft model. The first round of each warms up: there it is learnt who is right."""
    whole, num_active = shape(kind, size), _ACTIVE[kind]
    paths = [folder / f"{kind}-{size}-{name}.gguf" for name in ("main", "draft")]
    write_random_model(paths[0], whole, num_active)
    write_random_model(paths[1], replace(whole, layers=whole.layers[:num_active]))
    try:
        with closing(Model(paths[0])) as model, closing(Model(paths[1])) as draft:
            for name, guesser in (("always right", DraftModel), ("always wrong", AlwaysWrong)):
                _compare(f"{kind} {size}, {name}", _pair(model, draft, guesser), rounds)
    finally:
        for path in paths:
            path.unlink()
    return 0


def _compare(what: str, pair: Pair, rounds: int) -> None:
    rng, played = np.random.default_rng(1), list[dict[str, Played]]()
    for number in range(rounds + 1):
        prompt = rng.choice(small_vocabulary().words, _PROMPT).astype(np.int32)
        turns = [*pair._asdict().items()][:: -1 if number % 2 else 1]
        played.append({name: _play(scheduler, prompt) for name, scheduler in turns})
    alone, drafting = ([took[name] for took in played[1:]] for name in Pair._fields)
    ratios = [with_.tokens_per_s / without.tokens_per_s for with_, without in zip(drafting, alone, strict=True)]
    drafted, accepted = sum(one.num_drafted for one in drafting), sum(one.num_accepted for one in drafting)
    print(
        f"{what}: {median(one.tokens_per_s for one in drafting):.1f} tokens/s, {median(ratios):.3f} times "
        f"({min(ratios):.3f} … {max(ratios):.3f}); {accepted} of {drafted} drafted right"
    )
    for engine in (pair.drafting.engine, pair.drafting.engine.draft):
        if engine is not None:
            engine.context.close()


def _pair(model: Model, draft: Model, kind: type[DraftModel]) -> Pair:
    engine, beside = LlamaEngine(model, _SETTINGS), LlamaEngine(draft, _SETTINGS)
    engine.draft = beside
    caches = [
        Cache(each.memory, num_slots=1, budget_bytes=1 << 30, costs=measured_costs(each)) for each in (engine, beside)
    ]
    seconds, step_ms = measure_batches(engine), caches[1].costs.step_ms
    times = BatchTimes(seconds, measure_change(engine, seconds))
    print(
        f"a token takes {times.ms:.2f} ms, of the draft model {step_ms:.2f}, a change of size {times.change:.2f} tokens"
    )
    print("a batch of", ", ".join(f"{size}: {1000 * time_s:.2f} ms" for size, time_s in seconds.items()))
    drafting = kind(beside, caches[1], model.vocabulary.size, caches[0].lock)
    has_state, guesses = engine.memory.has_state, [Guesses(drafting, times, step_ms)]
    drafter = Drafter(times, decodes_again=has_state, guesses=guesses, has_trails=False, model=drafting)
    return Pair(Scheduler(engine, caches[0]), Scheduler(engine, caches[0], drafter=drafter))


def _play(scheduler: Scheduler, prompt: Tokens) -> Played:
    sink = Sink()
    run = Run(Job(Prompt(prompt), max_tokens=_REPLY, ignore_end=True), sink)
    scheduler.submit(run)
    while scheduler.step():
        pass
    if sink.error is not None:
        raise sink.error
    scheduler.tidy()
    seconds = sink.timings.finished - sink.timings.first_token
    return Played((sink.num_tokens - 1) / seconds, sink.timings.num_drafted, sink.timings.num_accepted)
