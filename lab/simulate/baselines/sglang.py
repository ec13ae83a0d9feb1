"""SGLang's radix cache for hybrid models: one state per piece of a prefill, or at the branch point inside it instead.

Attention and states have a list each, least recently used first; here both are under one budget, in its favour. An
evicted state leaves its attention behind.
"""

from itertools import pairwise

from lab.simulate.baselines.recency import RecencyCache

_PIECE_TOKENS = 8192


class Sglang(RecencyCache):
    def places(self, resumed: int, known: int, length: int) -> list[int]:
        step = _PIECE_TOKENS // self._block_tokens
        ends = [*range(resumed + step, length, step), length]
        return [known if start < known < end else end for start, end in pairwise((resumed, *ends))]
