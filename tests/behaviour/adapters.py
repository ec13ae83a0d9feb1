"""Plays random histories over a model and its adapters to one server: every reply is held against one of its own.

    python -m tests.behaviour.adapters ARCHITECTURE [STEPS] [SEED]

The server has three adapters, one of them with two scales, and an aLoRA; little RAM; a disk; and is restarted in
between. Each reply is compared, tokens and logits bit for bit, with that of a server that has only the adapter in
question and reads the prompt from its beginning.
"""

import random
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from leftoff.adapters import AdapterSet
from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.sampling import Sampling
from leftoff.scheduler.job import Finish, Job, Timings
from leftoff.scheduler.run import Run
from leftoff.types import Prompt, Tokens
from tests.factory import model_path
from tests.factory.adapters import lora_path
from tests.patience import PATIENCE_S
from tests.scheduler.recorder import Recorder
from tests.server.fixtures import settings

INVOCATION = (40, 41, 42, 43, 44)
VARIANTS = ("", "a", "half", "b", "c", "d")  # d is the aLoRA
_STEPS_PER_LIFE = 12
_NUM_WRITTEN = 6

Own = dict[str, ModelHost]  # by variant


@dataclass
class Tally:
    num_steps: int = 0
    num_differing: int = 0
    num_prompt: int = 0
    num_reused: int = 0
    reused: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        by_variant = ", ".join(f"{name or 'base'} {count}" for name, count in self.reused.items())
        return (
            f"{self.num_steps} histories, {self.num_reused} of {self.num_prompt} prompt tokens reused ({by_variant});"
            f" {self.num_differing} replies differ"
        )


class Waiting(Recorder):
    """A recorder of a run on the engine's own thread."""

    def __init__(self) -> None:
        super().__init__()
        self.done = threading.Event()

    def finished(self, finish: Finish, timings: Timings, error: Exception | None) -> None:
        super().finished(finish, timings, error)
        self.done.set()


def adapter_files(model: Path) -> dict[str, str]:
    """As the flag has them."""
    a, b, c = (lora_path(model, seed) for seed in (1, 2, 3))
    alora = lora_path(model, 4, INVOCATION)
    return {"a": f"a={a}", "half": f"half={a}:0.5", "b": f"b={b}", "c": f"c={c}", "d": f"d={alora}"}


def submit(host: ModelHost, tokens: Tokens, adapters: AdapterSet, max_tokens: int = _NUM_WRITTEN) -> Waiting:
    sink = Waiting()
    job = Job(Prompt(tokens).adapted(adapters), Sampling(temperature=0), max_tokens, wants_logits=True, ignore_end=True)
    host.scheduler.submit(Run(job, sink))
    return sink


def ask(host: ModelHost, tokens: Tokens, variant: str, max_tokens: int = _NUM_WRITTEN) -> Waiting:
    sink = submit(host, tokens, host.adapters.asked(f"tiny:{variant}" if variant else None), max_tokens)
    assert sink.done.wait(PATIENCE_S)
    assert sink.error is None, sink.error
    return sink


@contextmanager
def of_their_own(architecture: str) -> Iterator[Own]:
    """A server for each variant, which has no other adapter."""
    files = adapter_files(model_path(architecture))
    with ExitStack() as stack:
        hosts = {}
        for variant in VARIANTS:
            own = settings(architecture, deterministic=True, lora=tuple(filter(None, [files.get(variant)])))
            hosts[variant] = stack.enter_context(open_host(own))
        yield hosts


def expected(hosts: Own, tokens: Tokens, variant: str) -> Waiting:
    host = hosts[variant]
    host.call(host.cache.clear).result()
    return ask(host, tokens, variant)


class Histories:
    """Prompts that go on from, or part from, those before, and replies among them."""

    def __init__(self, seed: int, num_tokens: int) -> None:
        self._random = random.Random(seed)
        self._num_tokens = num_tokens
        self._known: list[Tokens] = []

    def next(self) -> tuple[Tokens, str]:
        draw, variant = self._random, self._random.choice((*VARIANTS, "", "d"))
        tokens = np.empty(0, np.int32)
        if self._known and draw.random() < 0.85:
            known = draw.choice(self._known[-12:])
            tokens = known[: known.size if draw.random() < 0.6 else draw.randint(1, known.size)]
        tokens = np.concatenate([tokens[:900], self._new(draw.choice((1, 8, 70, 150)))])
        if variant == "d" and draw.random() < 0.9:
            invoked = np.array(INVOCATION, np.int32)
            tokens = np.concatenate([tokens, invoked, self._new(draw.choice((0, 1, 70, 130)))])
        return tokens, variant

    def add(self, tokens: Tokens, reply: Sequence[int]) -> None:
        self._known += [tokens, np.concatenate([tokens, np.array(reply, np.int32)])]

    def _new(self, count: int) -> Tokens:
        return np.array([self._random.randrange(5, self._num_tokens) for _ in range(count)], np.int32)


def play(architecture: str, own: Own, num_steps: int, seed: int, folder: Path, *, is_control: bool = False) -> Tally:
    """A control ends at the first reply that differs."""
    tally, files = Tally(reused=dict.fromkeys(VARIANTS, 0)), adapter_files(model_path(architecture))
    mixed = settings(
        architecture, deterministic=True, ram=1, disk=256, cache_dir=str(folder), lora=tuple(files.values())
    )
    histories = Histories(seed, own[""].model.vocabulary.size)
    while tally.num_steps < num_steps:
        with open_host(mixed) as host:
            for _ in range(min(_STEPS_PER_LIFE, num_steps - tally.num_steps)):
                tokens, variant = histories.next()
                found, measure = ask(host, tokens, variant), expected(own, tokens, variant)
                histories.add(tokens, found.tokens)
                is_same = found.tokens == measure.tokens and np.array_equal(found.logits, measure.logits)
                assert found.report is not None
                tally.num_steps += 1
                tally.num_differing += not is_same
                tally.num_prompt += tokens.size
                tally.num_reused += found.report.reused
                tally.reused[variant] += found.report.reused
                if is_control and not is_same:
                    return tally
    return tally


if __name__ == "__main__":
    _architecture, *_rest = sys.argv[1:]
    _steps, _seed = (int(text) for text in (*_rest, *("200", "0")[len(_rest) :]))
    with tempfile.TemporaryDirectory() as _folder, of_their_own(_architecture) as _own:
        _tally = play(_architecture, _own, _steps, _seed, Path(_folder))
    print(_architecture, _tally)
    sys.exit(_tally.num_differing > 0)
