"""The engine against its references, taken in turns so that a busy machine slows both."""

import statistics
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from lab.speed.bare import BareBatch, BareLoop, Stopwatch, stopwatch
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.measure import Bandwidth, measure_memcpy, measure_pages, measure_snapshots, some_tokens
from leftoff.engine.sampler import Sampler
from leftoff.sampling import Sampling

_PROMPT_TOKENS = 512
_PAGE_TOKENS = 1024
_COPY_S = 0.1
_ROUNDS = 5
_COPY_ROUNDS = 3
_MAX_STEPS = 1000
_MIN_STEPS = 16
_WARM_UP_STEPS = 4


@dataclass(frozen=True)
class Comparison:
    """The engine beside its reference, in the same unit."""

    name: str
    reference_name: str
    unit: str
    engine: float
    reference: float

    @property
    def ratio(self) -> float:
        return self.engine / self.reference


@dataclass(frozen=True)
class StepCost:
    """One decode step, and how much of it is Python, found in two ways.

    `difference_us` is how much longer it takes than the bare loop's step beside it. `python_us` is what a step spends
    outside llama.cpp: less noisy, but it counts the choice of the token, which in the bare loop llama.cpp makes.
    """

    step: Comparison
    python_us: float
    difference_us: float


@dataclass(frozen=True)
class _Pair:
    """Two neighbouring steps of one sequence."""

    engine_s: float
    inside_s: float  # the part of the engine's step that llama.cpp took
    bare_s: float


def compare_steps(engine: LlamaEngine, limit_s: float) -> StepCost:
    """One sequence goes on by turns: a step of the engine, a step of the bare loop, and so on."""
    with closing(BareLoop(engine)) as bare, stopwatch(engine) as watch:
        pairs = _step_by_turns(engine, bare, watch, limit_s)[_WARM_UP_STEPS:]
    engine.memory.drop(0)
    engine_us, bare_us = _median_us(pair.engine_s for pair in pairs), _median_us(pair.bare_s for pair in pairs)
    return StepCost(
        step=Comparison("decode step", "bare loop", "µs", engine_us, bare_us),
        python_us=_median_us(pair.engine_s - pair.inside_s for pair in pairs),
        difference_us=_median_us(pair.engine_s - pair.bare_s for pair in pairs),
    )


def _step_by_turns(engine: LlamaEngine, bare: BareLoop, watch: Stopwatch, limit_s: float) -> list[_Pair]:
    sampler, memory = Sampler(engine.model, Sampling()), engine.memory
    token = 0
    pairs: list[_Pair] = []
    deadline = time.perf_counter() + limit_s
    while _goes_on(len(pairs), deadline) and memory.free_cells >= 2:
        watch.seconds = 0.0
        start = time.perf_counter()
        (row,) = engine.decode([Work(0, np.array([token], np.int32))])
        token = sampler.sample(engine.context, row)
        engine_s = time.perf_counter() - start
        batch = BareBatch(np.array([token], np.int32), memory.length(0))
        pairs.append(_Pair(engine_s, watch.seconds, bare.step_seconds(batch)))
        memory.extend({0: 1})  # the engine keeps count of what the bare loop has added
    return pairs


def compare_prefill(engine: LlamaEngine) -> Comparison:
    num_tokens = min(_PROMPT_TOKENS, engine.batch_tokens, engine.memory.free_cells)
    prompt = some_tokens(engine, num_tokens)
    batch = BareBatch(prompt, 0)
    engine_s, bare_s = [], []
    with closing(BareLoop(engine)) as bare:
        for _ in range(_ROUNDS):
            start = time.perf_counter()
            (row,) = engine.decode([Work(0, prompt)])
            engine.logits(row)
            engine_s.append(time.perf_counter() - start)
            engine.memory.drop(0)
            bare_s.append(bare.read_seconds(batch))
            engine.memory.drop(0)
    rates = (num_tokens / statistics.median(times) for times in (engine_s, bare_s))
    return Comparison(f"prefill of {num_tokens}", "bare loop", "tokens/s", *rates)


def compare_copies(engine: LlamaEngine) -> list[Comparison]:
    """Pages and snapshots, as far as this memory has them."""
    return [
        *_compare_copy("page", lambda: measure_pages(engine, _PAGE_TOKENS, _COPY_S)),
        *_compare_copy("snapshot", lambda: measure_snapshots(engine, _PAGE_TOKENS, _COPY_S)),
    ]


def _compare_copy(name: str, measure_bandwidth: Callable[[], Bandwidth | None]) -> list[Comparison]:
    """Each round moves the bytes both ways, and then copies as many plainly."""
    save, load, plain = [], [], []
    nbytes = 0
    for _ in range(_COPY_ROUNDS):
        bandwidth = measure_bandwidth()
        if bandwidth is None:
            return []
        nbytes = bandwidth.nbytes
        save.append(bandwidth.save_bytes_per_s)
        load.append(bandwidth.load_bytes_per_s)
        plain.append(measure_memcpy(nbytes, _COPY_S))
    reference = statistics.median(plain) / 1e9
    return [
        Comparison(
            f"{way} {name} of {nbytes / 1e6:.2f} MB", "memcpy", "GB/s", statistics.median(rates) / 1e9, reference
        )
        for way, rates in (("save", save), ("load", load))
    ]


def _goes_on(num_steps: int, deadline: float) -> bool:
    return num_steps < _MIN_STEPS or (num_steps < _MAX_STEPS and time.perf_counter() < deadline)


def _median_us(seconds: Iterable[float]) -> float:
    return 1e6 * statistics.median(seconds)
