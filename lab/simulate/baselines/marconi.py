"""Marconi: states at the prompt's end and at branch points only, evicted by recency and compute saved per byte.

Its eviction is the cache's own `FlopUtility`; what differs is where states are put. The weight of compute against
recency is meant to be tuned by replaying recent requests: compare it with several, and take the best.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from lab.simulate.leftoff_scheme import OwnCache
from lab.simulate.llm import Llm
from lab.simulate.policies import FlopUtility
from lab.simulate.scheme import Budget
from leftoff.cache.placement import Gaps, Placement
from leftoff.types import Prompt


@dataclass(frozen=True)
class EndAndBranch(Placement):
    """One state where the prompt leaves a known path, one at its end."""

    def snapshot_positions(
        self,
        prompt: Prompt,
        resume: int,
        shared: Iterable[int],
        gaps: Gaps,  # noqa: ARG002
    ) -> tuple[int, ...]:
        return tuple(sorted({*(place for place in shared if place > resume), prompt.length}))


def marconi(llm: Llm, block_tokens: int, budget: Budget, alpha: float) -> OwnCache:
    policy = partial(FlopUtility, alpha=alpha, attention_share=llm.attention_share * block_tokens)
    return OwnCache(llm, block_tokens, budget, policy, EndAndBranch())
