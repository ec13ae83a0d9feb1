"""Drafts in one process, without a server: replies of given tokens, whatever the model would say, with and without.

    repeats       the reply is its prompt again, with one token of every 48 changed
    nothing       the reply is random tokens
    4 streams     two of each at once, and their tokens per second together

Works for any model, also one of random weights. Rounds are taken in turns; a ratio is the median over them.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from leftoff.cache.cache import Cache
from leftoff.cache.report import ReuseReport
from leftoff.drafts.batch_times import BatchTimes
from leftoff.drafts.drafter import Drafter
from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.measure import measure_batches, measure_change
from leftoff.engine.model import Model
from leftoff.hub.reference import default_model
from leftoff.machine import default_threads
from leftoff.scheduler.job import Finish, Job, Timings
from leftoff.scheduler.run import Run
from leftoff.scheduler.scheduler import Scheduler
from leftoff.types import Logits, Prompt

_CHANGED_EVERY = 48
_NUM_STREAMS = 4
_ROOM = 256  # tokens of a sequence beside its prompt and reply: what is drafted, and rounding


class Script:
    """A constraint that allows one token at a time."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._left = [*reversed(tokens)]

    @property
    def is_done(self) -> bool:
        return not self._left

    def mask(self, logits: Logits) -> bool:
        logits[:] = -np.inf
        logits[self._left[-1]] = 0.0
        return True

    def accept(self, token: int) -> None:
        assert token == self._left.pop()


@dataclass
class Reply:
    """A sink that counts."""

    num_tokens: int = 0
    timings: Timings = field(default_factory=Timings)
    error: Exception | None = None

    def started(self, report: ReuseReport) -> None: ...

    def progress(self, num_read: int) -> None: ...

    def token(self, token: int, logits: Logits | None) -> bool:  # noqa: ARG002
        self.num_tokens += 1
        return True

    def finished(self, finish: Finish, timings: Timings, error: Exception | None) -> None:  # noqa: ARG002
        self.timings, self.error = timings, error


@dataclass(frozen=True)
class Texts:
    """Prompts and replies of random tokens."""

    rng: np.random.Generator
    vocabulary_size: int
    prompt_tokens: int
    reply_tokens: int

    def tokens(self, num_tokens: int) -> list[int]:
        tokens: list[int] = self.rng.integers(100, self.vocabulary_size - 100, num_tokens).tolist()
        return tokens

    def repeats(self) -> tuple[list[int], list[int]]:
        prompt = self.tokens(self.prompt_tokens)
        reply = [token + (index % _CHANGED_EVERY == 0) for index, token in enumerate(prompt[: self.reply_tokens])]
        return prompt, reply

    def nothing(self) -> tuple[list[int], list[int]]:
        return self.tokens(self.prompt_tokens), self.tokens(self.reply_tokens)


def play(scheduler: Scheduler, texts: Sequence[tuple[list[int], list[int]]]) -> float:
    """Tokens per second of all replies together, from when all have begun."""
    replies = [Reply() for _ in texts]
    for (prompt, script), reply in zip(texts, replies, strict=True):
        job = Job(Prompt(np.array(prompt, np.int32)), max_tokens=len(script), constraint=Script(script))
        scheduler.submit(Run(job, reply))
    while not all(reply.num_tokens for reply in replies):
        scheduler.step()
    began, num_before = time.perf_counter(), sum(reply.num_tokens for reply in replies)
    while scheduler.step():
        pass
    for reply in replies:
        if reply.error is not None:
            raise reply.error
    return (sum(reply.num_tokens for reply in replies) - num_before) / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default=str(default_model()))
    parser.add_argument("--prompt", type=int, default=1024)
    parser.add_argument("--reply", type=int, default=384)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=default_threads())
    arguments = parser.parse_args()
    with closing(Model(arguments.model)) as model:
        num_cells = _NUM_STREAMS * (arguments.prompt + arguments.reply + _ROOM)
        settings = ContextSettings(num_cells=num_cells, num_sequences=_NUM_STREAMS, threads=arguments.threads)
        engines = [LlamaEngine(model, settings) for _ in range(2)]
        schedulers = [scheduler_of(engine, with_drafts=index == 1) for index, engine in enumerate(engines)]
        texts = Texts(np.random.default_rng(1), model.vocabulary.size, arguments.prompt, arguments.reply)
        compare(schedulers, texts, arguments.rounds)
        for engine in engines:
            engine.context.close()


def scheduler_of(engine: LlamaEngine, *, with_drafts: bool) -> Scheduler:
    drafter = None
    if with_drafts:
        seconds = measure_batches(engine)
        print("a batch of", ", ".join(f"{size}: {1000 * time_s:.1f} ms" for size, time_s in seconds.items()))
        drafter = Drafter(BatchTimes(seconds, measure_change(engine, seconds)), decodes_again=engine.memory.has_state)
    return Scheduler(engine, Cache(engine.memory, num_slots=_NUM_STREAMS, budget_bytes=1 << 30), drafter=drafter)


def compare(schedulers: Sequence[Scheduler], texts: Texts, rounds: int) -> None:
    tasks: dict[str, Callable[[], list[tuple[list[int], list[int]]]]] = {
        "repeats": lambda: [texts.repeats()],
        "nothing": lambda: [texts.nothing()],
        "4 streams": lambda: [texts.repeats(), texts.nothing(), texts.repeats(), texts.nothing()],
    }
    for name, make in tasks.items():
        rates = []
        for number in range(rounds + 1):
            task = make()
            order = schedulers if number % 2 else schedulers[::-1]
            rate = {scheduler: play(scheduler, task) for scheduler in order}
            rates.append([rate[scheduler] for scheduler in schedulers])
        without, drafted = zip(*rates[1:], strict=True)  # the first round warms up
        ratios = [after / before for before, after in rates[1:]]
        print(f"{name}: {median(without):.0f} tokens/s without, {median(drafted):.0f} with: {median(ratios):.2f} times")


if __name__ == "__main__":
    main()
