"""Plays a trace against a scheme, and counts."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from lab.simulate.llm import Llm
from lab.simulate.scheme import Scheme
from lab.simulate.trace import Request, Trace
from leftoff.cache.tree import Tree


@dataclass(frozen=True)
class Totals:
    """The requests that were served, and how long they waited for their first token."""

    num_requests: int
    prompt_tokens: int
    computed_tokens: int
    ttft_mean_ms: float
    ttft_p50_ms: float
    ttft_p95_ms: float

    @property
    def hit_rate(self) -> float:
        return 1 - self.computed_tokens / self.prompt_tokens


@dataclass(frozen=True)
class Outcome(Totals):
    """What a scheme made of a trace."""

    most_bytes: int
    seconds: float


def totals(requests: Sequence[Request], computed_tokens: int, ttft_ms: npt.NDArray[np.float64]) -> Totals:
    mean_ms, (p50_ms, p95_ms) = float(ttft_ms.mean()), np.percentile(ttft_ms, [50, 95]).tolist()
    prompt_tokens = sum(request.prompt_tokens for request in requests)
    return Totals(len(requests), prompt_tokens, computed_tokens, mean_ms, p50_ms, p95_ms)


def play(trace: Trace, scheme: Scheme, llm: Llm) -> Outcome:
    began = time.perf_counter()
    computed, ttft_ms, most_bytes = 0, np.zeros(len(trace.requests)), 0
    for index, request in enumerate(trace.requests):
        served = scheme.serve(request, request.blocks())
        num_tokens = request.prompt_tokens - served.resumed * trace.block_tokens
        computed += num_tokens
        ttft_ms[index] = llm.ttft_ms(num_tokens, served.ram_bytes, served.disk_bytes, served.saved_bytes)
        most_bytes = max(most_bytes, scheme.held_bytes)
    counts = asdict(totals(trace.requests, computed, ttft_ms))
    return Outcome(**counts, most_bytes=most_bytes, seconds=time.perf_counter() - began)


def unavoidable_tokens(trace: Trace) -> int:
    """What even a cache without limits must read: everything that no earlier prompt began with."""
    known, tokens = Tree(), 0
    for request in trace.requests:
        blocks = request.blocks()
        tokens += request.prompt_tokens - known.match(blocks).length * trace.block_tokens
        known.insert(blocks, 0.0)
    return tokens
