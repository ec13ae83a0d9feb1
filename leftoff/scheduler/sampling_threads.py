"""Samples the next tokens of many replies at once.

With a vocabulary of 150,000 tokens a sampler takes about half a millisecond: for sixteen replies, half as long as a GPU
takes for the batch itself. Samplers know nothing of each other, and llama.cpp runs without the GIL.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from leftoff.engine.engine import LlamaEngine
from leftoff.machine import num_cores
from leftoff.scheduler.run import Run

_MOST_THREADS = 8
_LARGE_VOCABULARY = 50_000  # tokens: with fewer, waking a thread takes longer than sampling
_FEWEST = 4  # replies worth waking threads for

Sampled = tuple[Run, int]  # a run, and the row of its logits in the last batch


class SamplingThreads:
    """Threads for samplers; none on a machine with few cores, or for a small vocabulary."""

    def __init__(self, engine: LlamaEngine) -> None:
        self._engine = engine
        num_threads = min(_MOST_THREADS, num_cores() // 2)
        is_worth_it = num_threads > 1 and engine.model.vocabulary.size >= _LARGE_VOCABULARY
        self._threads = ThreadPoolExecutor(num_threads, "leftoff-sampling") if is_worth_it else None
        self._num_threads = num_threads

    def sample(self, batch: Sequence[Sampled]) -> None:
        """Samples a token for each run. Nothing is told to anybody yet: `Run.take_sampled` does that."""
        if self._threads is None or len(batch) < _FEWEST:
            _sample_all(batch)
            return
        self._engine.logits(batch[0][1])  # llama.cpp sorts the rows when it is asked for the first one
        num_shares = min(self._num_threads, len(batch))
        shares = [batch[first::num_shares] for first in range(num_shares)]
        others = [self._threads.submit(_sample_all, share) for share in shares[1:]]
        _sample_all(shares[0])
        wait(others)


def _sample_all(batch: Sequence[Sampled]) -> None:
    for run, row in batch:
        run.sample(row)
