"""llama.cpp with no Python in between: the reference that the engine is measured against.

It drives the engine's own context through structs that are built beforehand, so that what is timed is C alone. It
checks nothing and keeps no count: for benchmarks only.
"""

import ctypes as C
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from leftoff.engine.binding import abi
from leftoff.engine.engine import LlamaEngine
from leftoff.types import Tokens


class BareBatch:
    """A llama_batch of `tokens` at positions start, start + 1, … of sequence 0, with logits of the last one."""

    def __init__(self, tokens: Tokens, start: int) -> None:
        num_tokens = tokens.size
        self.tokens = tokens.copy()
        self._positions = np.arange(start, start + num_tokens, dtype=np.int32)
        self._num_seqs = np.ones(num_tokens, np.int32)
        self._seq = np.zeros(1, np.int32)
        self._seq_lists = np.full(num_tokens, self._seq.ctypes.data, np.uint64)
        self._logits = np.zeros(num_tokens, np.int8)
        self._logits[-1] = 1
        arrays = (self._positions, self._num_seqs, self._seq_lists, self._logits)
        self.struct = abi.Batch(num_tokens, self.tokens.ctypes.data, None, *(array.ctypes.data for array in arrays))


class BareLoop:
    """Decodes and samples on the engine's context. Free the sampler with `close`."""

    def __init__(self, engine: LlamaEngine) -> None:
        self._dll = engine.model.library.dll
        self._context = engine.context.handle
        self._chain = self._dll.llama_sampler_chain_init(self._dll.llama_sampler_chain_default_params())
        self._dll.llama_sampler_chain_add(self._chain, self._dll.llama_sampler_init_greedy())
        # kept here, so that a stopwatch on the engine's calls does not run in the reference
        self._decode, self._sample = self._dll.llama_decode, self._dll.llama_sampler_sample

    def close(self) -> None:
        self._dll.llama_sampler_free(self._chain)

    def step_seconds(self, batch: BareBatch) -> float:
        """How long it takes to decode one token and choose the next."""
        decode, sample = self._decode, self._sample
        context, chain, struct = self._context, self._chain, batch.struct
        start = time.perf_counter()
        code = decode(context, struct)
        sample(chain, context, 0)
        seconds = time.perf_counter() - start
        assert code == 0, f"llama_decode returned {code}"
        return seconds

    def read_seconds(self, batch: BareBatch) -> float:
        """How long it takes to read a prompt until its logits are there."""
        decode, logits = self._decode, self._dll.llama_get_logits_ith
        context, struct, last = self._context, batch.struct, C.c_int32(batch.tokens.size - 1)
        start = time.perf_counter()
        code = decode(context, struct)
        logits(context, last)
        seconds = time.perf_counter() - start
        assert code == 0, f"llama_decode returned {code}"
        return seconds


class Stopwatch:
    """Adds up the seconds that pass inside llama.cpp."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function: Callable[..., int]) -> Callable[..., int]:
        def timed(*arguments: object) -> int:
            start = time.perf_counter()
            result = function(*arguments)
            self.seconds += time.perf_counter() - start
            return result

        return timed


@contextmanager
def stopwatch(engine: LlamaEngine) -> Iterator[Stopwatch]:
    """Times what the engine's own steps spend in C. What remains of a step is Python, whatever the machine does."""
    dll = engine.model.library.dll
    watch = Stopwatch()
    functions = {name: getattr(dll, name) for name in ("llama_decode", "llama_sampler_sample")}
    try:
        for name, function in functions.items():
            setattr(dll, name, watch.around(function))
        yield watch
    finally:
        for name, function in functions.items():
            setattr(dll, name, function)
