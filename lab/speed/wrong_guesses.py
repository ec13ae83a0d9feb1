"""What guesses that are never right cost: replies with them and without, in turns, by the CPU time of one thread.

    python -m lab.speed.wrong_guesses eagle|mtp|model [--dense] [--rounds 5] [--replies 6]

The model is random, with a next-token layer; the head or the draft model, of a quarter of its layers, is made for it.
Every round begins anew: its first reply is that in which it is learnt that all guesses are wrong.
"""

import argparse
import time
from dataclasses import replace
from statistics import median

import numpy as np

from lab.speed.scripted import Reply as Sink
from leftoff.cache.cache import Cache
from leftoff.drafts.batch_times import BatchTimes
from leftoff.drafts.draft_model import DraftModel
from leftoff.drafts.drafter import Drafter
from leftoff.drafts.guesses import Guesses, HeadGuesser, Reply
from leftoff.engine.context import ContextSettings
from leftoff.engine.eagle import EagleContext
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.measure import measure_batches, measure_change, measure_head
from leftoff.engine.model_settings import ModelSettings
from leftoff.host.build import measured_costs
from leftoff.scheduler.job import Job
from leftoff.scheduler.run import Run
from leftoff.scheduler.scheduler import Scheduler
from leftoff.types import Prompt, Tokens
from tests.factory import MTP, Scale, model_path, small_vocabulary
from tests.factory.heads import head_path

_SCALE = Scale(width=4, depth=3)
_PROMPT, _REPLY = 200, 384
_SETTINGS = ContextSettings(num_cells=1024, num_sequences=1, threads=1)


class WrongHead(HeadGuesser):
    def guess(self, reply: Reply, most: int) -> list[int]:
        return [abs(token - 1) for token in super().guess(reply, most)]


class WrongModel(DraftModel):
    def guess(self, reply: Reply, most: int) -> list[int]:
        return [abs(token - 1) for token in super().guess(reply, most)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", choices=("eagle", "mtp", "model"))
    parser.add_argument("--dense", action="store_true", help="a model of attention alone, for a head or a draft model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--replies", type=int, default=6)
    arguments = parser.parse_args()
    name = "llama" if arguments.dense else MTP
    rounds = [_play_round(arguments.source, name, arguments.replies, seed) for seed in range(arguments.rounds)]
    first, later = [ratios[0] for ratios in rounds], [ratio for ratios in rounds for ratio in ratios[1:]]
    print(f"{arguments.source}, {name}: the first reply takes {median(first):.3f} times as long ({min(first):.3f} to")
    print(f"{max(first):.3f}), later ones {median(later):.3f} ({min(later):.3f} to {max(later):.3f})")


def _play_round(source: str, name: str, num_replies: int, seed: int) -> list[float]:
    """For each reply, its time with guesses by its time without."""
    with (
        LlamaEngine.open(model_path(name, _SCALE), _SETTINGS) as plain,
        LlamaEngine.open(
            model_path(name, _SCALE), _SETTINGS, model_settings=ModelSettings(mtp=source == "mtp")
        ) as engine,
    ):
        schedulers = [Scheduler(plain, _cache(plain)), _with_guesses(engine, source, name)]
        rng, ratios = np.random.default_rng(seed), []
        for number in range(num_replies):
            prompt = rng.choice(small_vocabulary().words, _PROMPT).astype(np.int32)
            order = (0, 1) if number % 2 else (1, 0)
            took = {index: _play(schedulers[index], prompt) for index in order}
            ratios.append(took[1] / took[0])
    return ratios


def _cache(engine: LlamaEngine) -> Cache:
    return Cache(engine.memory, num_slots=1, budget_bytes=1 << 28, costs=measured_costs(engine))


def _with_guesses(engine: LlamaEngine, source: str, name: str) -> Scheduler:
    cache, model = _cache(engine), None
    seconds = measure_batches(engine)
    times = BatchTimes(seconds, measure_change(engine, seconds))
    if source == "model":
        engine.draft = LlamaEngine.open(model_path(name, replace(_SCALE, depth=1)), _SETTINGS)
        beside = _cache(engine.draft)
        model = WrongModel(engine.draft, beside, engine.model.vocabulary.size, cache.lock)
        guesses = Guesses(model, times, beside.costs.step_ms)
    else:
        if source == "eagle":
            path = head_path(name, scale=_SCALE)
            engine.head = EagleContext(engine.context, engine.memory.replaced, path, ModelSettings(gpu_layers=0))
        assert engine.head is not None
        measured = measure_head(engine)
        guesses = Guesses(WrongHead(engine.head), times, measured.step_ms, measured.wake_ms)
    print(f"a token takes {times.ms:.2f} ms, to guess one {guesses.step_ms:.2f}, of batches {times.multiples[2]:.2f}")
    drafter = Drafter(times, decodes_again=engine.memory.has_state, guesses=[guesses], has_trails=False, model=model)
    return Scheduler(engine, cache, drafter=drafter)


def _play(scheduler: Scheduler, prompt: Tokens) -> float:
    """The CPU seconds of a reply after its first token."""
    sink = Sink()
    scheduler.submit(Run(Job(Prompt(prompt), max_tokens=_REPLY, ignore_end=True), sink))
    while not sink.num_tokens:
        scheduler.step()
    began = time.thread_time()
    while scheduler.step():
        pass
    seconds = time.thread_time() - began
    if sink.error is not None:
        raise sink.error
    scheduler.tidy()
    return seconds


if __name__ == "__main__":
    main()
