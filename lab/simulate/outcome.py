"""Plays a trace against a scheme, and counts."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lab.simulate.llm import Llm
from lab.simulate.scheme import Scheme
from lab.simulate.trace import Trace
from leftoff.cache.tree import Tree

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Outcome:
    """What a scheme made of a trace."""

    num_requests: int
    prompt_tokens: int
    computed_tokens: int
    ttft_mean_ms: float
    ttft_p50_ms: float
    ttft_p95_ms: float
    most_bytes: int
    seconds: float

    @property
    def hit_rate(self) -> float:
        return 1 - self.computed_tokens / self.prompt_tokens


def play(trace: Trace, scheme: Scheme, llm: Llm, progress: Progress | None = None) -> Outcome:
    began = time.perf_counter()
    computed, ttft_ms, most_bytes = 0, np.zeros(len(trace.requests)), 0
    for index, request in enumerate(trace.requests):
        served = scheme.serve(request, request.blocks())
        num_tokens = request.prompt_tokens - served.resumed * trace.block_tokens
        computed += num_tokens
        ttft_ms[index] = llm.ttft_ms(num_tokens, served.ram_bytes, served.disk_bytes, served.saved_bytes)
        most_bytes = max(most_bytes, scheme.held_bytes)
        if progress is not None:
            progress(index + 1)
    return Outcome(
        len(trace.requests),
        sum(request.prompt_tokens for request in trace.requests),
        computed,
        float(ttft_ms.mean()),
        float(np.percentile(ttft_ms, 50)),
        float(np.percentile(ttft_ms, 95)),
        most_bytes,
        time.perf_counter() - began,
    )


def unavoidable_tokens(trace: Trace) -> int:
    """What even a cache without limits must read: everything that no earlier prompt began with."""
    known, tokens = Tree(), 0
    for request in trace.requests:
        blocks = request.blocks()
        tokens += request.prompt_tokens - known.match(blocks).length * trace.block_tokens
        known.insert(blocks, 0.0)
    return tokens
