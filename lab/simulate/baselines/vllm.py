"""vLLM with `--mamba-cache-mode align`: states at the ends of large blocks only.

One is kept under the prompt's end, and one where the prompt leaves what other prompts have in common with it, both
rounded down to a block. Blocks have 528 tokens and more, depending on the model; here they have as many as the trace's
blocks allow below that, in its favour.
"""

from lab.simulate.baselines.recency import RecencyCache
from lab.simulate.llm import Llm
from lab.simulate.scheme import Budget

_BLOCK_TOKENS = 528


class Vllm(RecencyCache):
    touches_path = False

    def __init__(self, llm: Llm, block_tokens: int, budget: Budget, num_ids: int) -> None:
        super().__init__(llm, block_tokens, budget, num_ids)
        self.grid_blocks = max(1, _BLOCK_TOKENS // block_tokens)

    def places(self, resumed: int, known: int, length: int) -> list[int]:
        junction = known // self.grid_blocks * self.grid_blocks
        end = length // self.grid_blocks * self.grid_blocks
        return [place for place in (junction, end) if place > resumed]
