"""Draft models beside a random model, in one process and in turns: one is right by construction, one is always wrong.

After its first layers those of the model add nothing, but are computed all the same. The draft model has these first
layers alone: so it says what the model says, in a part of the time. The wrong one says the token after that.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
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
_ALONE = ("alone", "alone again")  # by how much these differ, chance makes
_NAMES = (_ALONE[0], "always right", "always wrong", _ALONE[1])


class AlwaysWrong(DraftModel):
    """As fast as the right one."""

    def guess(self, reply: Reply, most: int) -> list[int]:
        return [(token + 1) % self._num_tokens for token in super().guess(reply, most)]


class Played(NamedTuple):
    """One reply."""

    tokens_per_s: float
    num_drafted: int
    num_accepted: int


def measure(folder: Path, kind: str, size: str, rounds: int) -> int:
    """Prints a line for each draft model. The first round of each warms up: there it is learnt who is right."""
    whole, num_active = shape(kind, size), _ACTIVE[kind]
    paths = [folder / f"{kind}-{size}-{name}.gguf" for name in ("main", "draft")]
    write_random_model(paths[0], whole, num_active)
    write_random_model(paths[1], replace(whole, layers=whole.layers[:num_active]))
    try:
        _compare(f"{kind} {size}", *(Model(path) for path in paths), rounds=rounds)
    finally:
        for path in paths:
            path.unlink()
    return 0


def _compare(what: str, model: Model, draft: Model, *, rounds: int) -> None:
    drafting = [_with_drafts(model, draft, kind) for kind in (DraftModel, AlwaysWrong)]
    schedulers = [_alone(model), *drafting, _alone(model)]
    rng, turns, played = np.random.default_rng(1), [*zip(_NAMES, schedulers, strict=True)], []
    for number in range(rounds + 1):
        prompt, first = rng.choice(small_vocabulary().words, _PROMPT).astype(np.int32), number % len(turns)
        played.append({name: _play(each, prompt) for name, each in turns[first:] + turns[:first]})
    for name in _NAMES:
        mine = [took[name] for took in played[1:]]
        ratio = median(took[name].tokens_per_s / _alone_rate(took) for took in played[1:])
        drafted, accepted = sum(one.num_drafted for one in mine), sum(one.num_accepted for one in mine)
        rate = median(one.tokens_per_s for one in mine)
        print(f"{what}, {name}: {rate:.1f} tokens/s, {ratio:.3f} times; {accepted} of {drafted} drafted right")
    for scheduler in schedulers:
        for engine in (scheduler.engine, scheduler.engine.draft):
            if engine is not None:
                engine.context.close()
    model.close()
    draft.close()


def _alone_rate(took: Mapping[str, Played]) -> float:
    return mean(took[name].tokens_per_s for name in _ALONE)


def _alone(model: Model) -> Scheduler:
    engine = LlamaEngine(model, _SETTINGS)
    return Scheduler(engine, Cache(engine.memory, num_slots=1, budget_bytes=1 << 30, costs=measured_costs(engine)))


def _with_drafts(model: Model, draft: Model, kind: type[DraftModel]) -> Scheduler:
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
    return Scheduler(engine, caches[0], drafter=drafter)


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
