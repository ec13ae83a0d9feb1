"""Measures prefill, decode, and saving and loading of memory on this machine, in a second or two.

Costs differ thirtyfold between machines, so they are measured and never assumed. Every function needs an empty engine,
and leaves it empty.
"""

import functools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.errors import InputError
from leftoff.engine.memory.base import Page, Snapshot
from leftoff.engine.model import Progress
from leftoff.types import Tokens

_SEQUENCE = 0
_FIRST_PROMPT, _GROWTH, _LONGEST_PROMPT = 16, 4, 512
_PAGE_TOKENS = 256
_MOVED_TOKENS, _MOVED_S = 2048, 0.3
_MEMCPY_BYTES = 16 << 20  # more than most caches hold, as saved bytes are
_MAX_RUNS = 64
_REPORT_S = 0.3
_AT_LOAD_S = 0.05  # for each thing that is measured at load
_LONG_S = 0.3
_BATCHES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 32)
_BATCHES_S = 0.3  # then the rest is extrapolated
_BATCH_RUNS = 5  # a GPU is as fast as it gets from the third or fourth on
_CHANGED, _STEPS_AFTER = 4, 2  # tokens of a batch, and steps after it
_NEARLY = 0.85
# What one chunk more costs on a CPU, in tokens: chunks of 64 are prefilled 8 % slower than those of 512, chunks of 128
# 4 %.
_CUT_TOKENS = 5
_MIN_CUT = 64  # where even so few tokens take long, a cut is a small part of it


@dataclass(frozen=True)
class Prefill:
    """The best prefill rate, which chunks of `num_tokens` reach nearly; shorter ones have a lower rate."""

    num_tokens: int
    tokens_per_s: float


@dataclass(frozen=True)
class Bandwidth:
    """Rates of saving and loading `nbytes` at once; for few bytes the call itself dominates."""

    nbytes: int
    save_bytes_per_s: float
    load_bytes_per_s: float


@dataclass(frozen=True)
class Measurements:
    """Rates of one engine on this machine. `page` or `snapshot` is None if the memory kind has none."""

    prefill: Prefill
    decode_tokens_per_s: float
    page: Bandwidth | None
    snapshot: Bandwidth | None
    memcpy_bytes_per_s: float


@dataclass(frozen=True)
class Rates:
    """Rates of an engine that plans and snapshot positions depend on, from the first request on."""

    prefill: Prefill  # in the smallest chunks that reach nearly the full rate
    cut_ms: float  # of prefilling in one such chunk more
    step_ms: float
    moved: Bandwidth  # of a snapshot, or where there are none of a page


def measure_at_load(engine: LlamaEngine) -> Rates:
    """Measures what plans and snapshots depend on, in about half a second; it also warms the engine up.

    A slow machine takes as long as it needs for a few chunks of 16 tokens, a slow GPU for two longer ones.
    """
    with _empty_sequence(engine):
        seconds = _chunk_seconds(engine)
        prefill = saturating_prefill(seconds)
        cut_ms = _cut_ms(engine, prefill, seconds)
    num_tokens = min(_PAGE_TOKENS, prefill.num_tokens)
    if engine.is_on_device:  # few bytes would tell more of the call than of the bus
        num_tokens = max(num_tokens, min(_MOVED_TOKENS, int(_MOVED_S * prefill.tokens_per_s)))
    moved = measure_snapshots(engine, num_tokens, _AT_LOAD_S) or measure_pages(engine, num_tokens, _AT_LOAD_S)
    assert moved is not None
    step_ms = _step_ms(engine)
    engine.memory.clear()
    engine.context.clear()  # also the bytes in free cells
    return Rates(prefill, cut_ms, step_ms, moved)


def _chunk_seconds(engine: LlamaEngine) -> dict[int, float]:
    """The seconds that chunks of growing sizes take, up to the first that takes long.

    With layers in RAM and others on a GPU, that one tells nothing of longer ones: for each chunk of 32 tokens and more
    llama.cpp copies the weights of those layers to the GPU, however long the chunk is. So a short and the longest chunk
    are measured there in any case.
    """
    prompts = [*_growing_prompts(engine)]
    seconds: dict[int, float] = {}
    for prompt in prompts:
        is_long = bool(seconds) and max(seconds.values()) > _AT_LOAD_S
        if not is_long or (engine.is_on_device and prompt.size in (_MIN_CUT, prompts[-1].size)):
            seconds[prompt.size] = best_seconds(functools.partial(_read_anew, engine, prompt))
    return seconds


def measure_batches(engine: LlamaEngine) -> dict[int, float]:
    """The seconds that batches of one sequence take by their number of tokens, as long as that is quick to measure."""
    seconds: dict[int, float] = {}
    deadline = time.perf_counter() + _BATCHES_S
    with _filled_sequence(engine, _FIRST_PROMPT):
        for num_tokens in _BATCHES:
            is_late = len(seconds) > 1 and time.perf_counter() > deadline
            if is_late or num_tokens > engine.memory.free_cells // 4:
                break
            work = Work(_SEQUENCE, some_tokens(engine, num_tokens), all_logits=True)
            seconds[num_tokens] = best_seconds(functools.partial(engine.decode, [work]), most_runs=_BATCH_RUNS)
    engine.memory.clear()
    engine.context.clear()
    return seconds


def measure_change(engine: LlamaEngine, seconds: Mapping[int, float]) -> float:
    """The seconds by which steps take longer around a batch of another size, beside those of the batch itself.

    A GPU replays the graph of a step that is like the one before: after any other batch it takes two steps to be as
    fast again.
    """
    if not engine.is_on_device or _CHANGED not in seconds:
        return 0.0
    batch, step = (Work(_SEQUENCE, some_tokens(engine, number), all_logits=True) for number in (_CHANGED, 1))

    def decode() -> None:
        for work in (batch, *(step for _ in range(_STEPS_AFTER))):
            engine.decode([work])

    with _filled_sequence(engine, _FIRST_PROMPT):
        took = best_seconds(decode)
    engine.memory.clear()
    engine.context.clear()
    return max(0.0, took - seconds[_CHANGED] - _STEPS_AFTER * seconds[1])


@dataclass(frozen=True)
class HeadTimes:
    """The milliseconds in which a head guesses a token, and by which two steps take longer, if it is paused between."""

    step_ms: float
    wake_ms: float


def measure_head(engine: LlamaEngine) -> HeadTimes:
    """Measures the engine's head, after a short prompt."""
    assert engine.head is not None
    head, token, num_tokens = engine.head, some_tokens(engine, 1), 4
    with _filled_sequence(engine, _FIRST_PROMPT) as start:
        guess_s = best_seconds(lambda: head.draft(_SEQUENCE, token, start, num_tokens))

        def step(*changes: bool) -> None:
            for is_worth_it in changes:
                head.attend(is_worth_it=is_worth_it)
                engine.decode([Work(_SEQUENCE, token)])

        wake_s = best_seconds(lambda: step(False, True)) - best_seconds(lambda: step(True, True))
    return HeadTimes(1000 * guess_s / num_tokens, 1000 * max(0.0, wake_s))


def saturating_prefill(seconds: Mapping[int, float]) -> Prefill:
    """The best rate of chunks of these sizes, and the smallest chunk that is nearly as fast by the token."""
    rate = max(num_tokens / time_s for num_tokens, time_s in seconds.items())
    enough = min(num_tokens for num_tokens, time_s in seconds.items() if num_tokens / time_s >= _NEARLY * rate)
    return Prefill(enough, rate)


def _step_ms(engine: LlamaEngine) -> float:
    """A GPU decodes its first few tokens slowly: the best counts."""
    token = some_tokens(engine, 1)
    with _filled_sequence(engine, 1):
        return 1000 * best_seconds(lambda: engine.decode([Work(_SEQUENCE, token)]), 3 * _AT_LOAD_S, most_runs=12)


def _cut_ms(engine: LlamaEngine, prefill: Prefill, seconds: Mapping[int, float]) -> float:
    """How much longer two chunks take in two batches than in one. A CPU takes too long to measure that at load."""
    num_tokens = prefill.num_tokens
    if not engine.is_on_device:
        return 1000 * _CUT_TOKENS / prefill.tokens_per_s
    if seconds.get(_MIN_CUT, 0.0) > _AT_LOAD_S:
        return 1000 * chunk_seconds(seconds)
    if num_tokens < _MIN_CUT or 2 * num_tokens > _room(engine):
        return 0.0
    tokens = some_tokens(engine, 2 * num_tokens)
    at_once = best_seconds(lambda: _read_anew(engine, tokens))
    apart = best_seconds(lambda: _read_anew(engine, tokens[:num_tokens], tokens[num_tokens:]))
    return max(0.0, 1000 * (apart - at_once))


def chunk_seconds(seconds: Mapping[int, float]) -> float:
    """The fixed time of a chunk, extrapolated to no tokens from the two longest chunks that were measured."""
    short, long = sorted(seconds)[-2:]
    return max(0.0, (long * seconds[short] - short * seconds[long]) / (long - short))


def best_seconds(action: Callable[[], object], limit_s: float = _AT_LOAD_S, most_runs: int = 3) -> float:
    """The shortest of up to `most_runs`, and of at least two unless the first took long."""
    return min(_timed(action, limit_s, most_runs))


def _timed(action: Callable[[], object], limit_s: float, most_runs: int) -> list[float]:
    """The seconds of as many runs as fit in the time, and of at least two unless the first takes long."""
    times: list[float] = []
    while not times or (len(times) < most_runs and (sum(times) < limit_s or (len(times) == 1 and times[0] < _LONG_S))):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return times


def measure(engine: LlamaEngine, limit_s: float = _REPORT_S, progress: Progress | None = None) -> Measurements:
    """Measures everything, each bandwidth in about `limit_s`: longer if the model needs longer for a few tokens."""
    report = progress or (lambda _: None)
    with _empty_sequence(engine):
        prefill = saturating_prefill(_chunk_seconds(engine))
    report(0.2)
    decode_tokens_per_s = 1000 / _step_ms(engine)
    report(0.4)
    num_tokens = min(_PAGE_TOKENS, prefill.num_tokens)  # a slow model is measured with a shorter page
    page = measure_pages(engine, num_tokens, limit_s)
    report(0.6)
    snapshot = measure_snapshots(engine, num_tokens, limit_s)
    report(0.8)
    memcpy_bytes_per_s = measure_memcpy(_MEMCPY_BYTES, limit_s)
    report(1.0)
    return Measurements(prefill, decode_tokens_per_s, page, snapshot, memcpy_bytes_per_s)


def measure_pages(engine: LlamaEngine, num_tokens: int, limit_s: float) -> Bandwidth | None:
    """Bandwidth of one page of `num_tokens`, or as many as fit."""
    if not engine.memory.kind.has_pages:
        return None
    with _filled_sequence(engine, num_tokens) as length:
        return _bandwidth(engine, length, lambda: engine.memory.save_page(_SEQUENCE, 0, length), limit_s)


def measure_snapshots(engine: LlamaEngine, num_tokens: int, limit_s: float) -> Bandwidth | None:
    """Bandwidth of one snapshot after `num_tokens`, or as many as fit."""
    if not engine.memory.kind.has_snapshots:
        return None
    with _filled_sequence(engine, num_tokens) as length:
        return _bandwidth(engine, length, lambda: engine.memory.save_snapshot(_SEQUENCE), limit_s)


def _bandwidth(engine: LlamaEngine, length: int, save: Callable[[], Page | Snapshot], limit_s: float) -> Bandwidth:
    """Of what `save` saves; loaded is the whole sequence: all pages in one, and the snapshot, as there are."""
    memory, kind = engine.memory, engine.memory.kind
    saved_bytes = save().nbytes
    save_s = median_seconds(save, limit_s / 2)
    pages = [memory.save_page(_SEQUENCE, 0, length).whole()] if kind.has_pages else []
    snapshot = memory.save_snapshot(_SEQUENCE) if kind.has_snapshots else None
    load_s = median_seconds(lambda: memory.restore(_SEQUENCE, length, pages=pages, snapshot=snapshot), limit_s / 2)
    loaded_bytes = sum(part.page.nbytes for part in pages) + (snapshot.nbytes if snapshot is not None else 0)
    return Bandwidth(saved_bytes, saved_bytes / save_s, loaded_bytes / load_s)


def measure_memcpy(nbytes: int, limit_s: float) -> float:
    """Bytes per second of a plain copy into memory that was touched before: the upper bound of saves and loads."""
    source, target = np.ones(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    return nbytes / median_seconds(lambda: np.copyto(target, source), limit_s)


def median_seconds(action: Callable[[], object], limit_s: float, most_runs: int = _MAX_RUNS) -> float:
    """Median over as many runs as fit in the time, after a warm-up: one that takes long is the only run.

    The first load on a GPU waits for the threads that still copy what it loads.
    """
    times = _timed(action, limit_s, most_runs)
    return statistics.median(times[1:] or times)


def some_tokens(engine: LlamaEngine, num_tokens: int) -> Tokens:
    """Different tokens, so that a mixture-of-experts model uses many of its experts."""
    return (np.arange(num_tokens) % engine.model.vocabulary.size).astype(np.int32)


def _read_anew(engine: LlamaEngine, *chunks: Tokens) -> None:
    engine.memory.drop(_SEQUENCE)
    for chunk in chunks:
        (row,) = engine.decode([Work(_SEQUENCE, chunk)])
        engine.logits(row)  # waits for a GPU


def _growing_prompts(engine: LlamaEngine) -> Iterator[Tokens]:
    """Prompts of 16, 64, 256 and 512 tokens, or as many as fit."""
    longest = min(_LONGEST_PROMPT, _room(engine))
    num_tokens = min(_FIRST_PROMPT, longest)
    while num_tokens < longest:
        yield some_tokens(engine, num_tokens)
        num_tokens = min(_GROWTH * num_tokens, longest)
    yield some_tokens(engine, longest)


def _room(engine: LlamaEngine) -> int:
    return min(engine.batch_tokens, engine.memory.free_cells)


@contextmanager
def _empty_sequence(engine: LlamaEngine) -> Iterator[None]:
    for seq in range(engine.memory.num_sequences):
        if engine.memory.length(seq):
            raise InputError(
                f"sequence {seq} holds {engine.memory.length(seq)} tokens: measure before the engine serves, or drop it"
            )
    try:
        yield
    finally:
        engine.memory.drop(_SEQUENCE)


@contextmanager
def _filled_sequence(engine: LlamaEngine, num_tokens: int) -> Iterator[int]:
    with _empty_sequence(engine):
        length = min(num_tokens, _room(engine))
        _read_anew(engine, some_tokens(engine, length))
        yield length
