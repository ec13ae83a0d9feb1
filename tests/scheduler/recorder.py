"""A sink that keeps everything, and requests that use it."""

from dataclasses import dataclass, field

import numpy as np

from leftoff.cache.report import ReuseReport
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.scheduler.job import Finish, Job, Timings
from leftoff.scheduler.run import Run
from leftoff.scheduler.scheduler import Scheduler
from leftoff.types import Logits, Prompt, Tokens

ROUNDING = 0.1  # the logits of the tiny models have a deviation of 1.3 and more


@dataclass
class Recorder:
    limit: int | None = None  # ends the reply by itself after so many tokens
    tokens: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    logits: list[Logits] = field(default_factory=list)
    report: ReuseReport | None = None
    finish: Finish | None = None
    error: Exception | None = None

    def started(self, report: ReuseReport) -> None:
        assert self.report is None
        self.report = report

    def progress(self, num_read: int) -> None:
        self.reads.append(num_read)

    def token(self, token: int, logits: Logits | None) -> bool:
        assert self.finish is None, "a token after the end"
        self.tokens.append(token)
        if logits is not None:
            self.logits.append(logits.copy())
        return self.limit is None or len(self.tokens) < self.limit

    def finished(self, finish: Finish, timings: Timings, error: Exception | None) -> None:  # noqa: ARG002
        assert self.finish is None, "finished twice"
        self.finish, self.error = finish, error


def ask(scheduler: Scheduler, tokens: Tokens, max_tokens: int = 8, namespace: str = "") -> tuple[Run, Recorder]:
    recorder = Recorder()
    run = Run(Job(Prompt(tokens), max_tokens=max_tokens, namespace=namespace), recorder)
    scheduler.submit(run)
    return run, recorder


def run(scheduler: Scheduler) -> int:
    """Steps until there is nothing to do, and sleeps while the disk reads; how many steps it took."""
    steps = 0
    while (worked := scheduler.step()) or scheduler.num_waiting:
        steps += 1
        assert steps < 100_000
        if not worked:
            scheduler.wait(1.0)
    return steps


def prompt(scheduler: Scheduler, num_tokens: int, seed: int) -> Tokens:
    rng = np.random.default_rng(seed)
    return rng.integers(0, scheduler.engine.model.vocabulary.size, num_tokens).astype(np.int32)


def assert_greedy(engine: LlamaEngine, tokens: Tokens, reply: list[int], rounding: float = ROUNDING) -> None:
    """The reply is what the engine says by itself, with no cache and nobody beside it.

    How a prompt is cut into pieces moves logits by rounding; a choice between two tokens closer than that is a tie.
    """
    for seq in range(engine.memory.num_sequences):
        engine.memory.drop(seq)
    whole = np.concatenate([tokens, np.array(reply[:-1], np.int32)])
    (row,) = engine.decode([Work(0, whole, all_logits=True)])
    for index, token in enumerate(reply):
        logits = engine.logits(row - len(reply) + 1 + index)
        assert logits.max() - logits[token] < rounding, f"token {index} of the reply is not what comes next"
    engine.memory.drop(0)
