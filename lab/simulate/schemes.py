"""Everything that can be compared, by name.

What rests in a slot counts into the budget, or not: then the budget is RAM alone, as the flags of both servers mean it,
and there are four slots beside it. Servers that keep everything in one pool are compared with the former.
"""

from collections.abc import Callable
from functools import partial

from lab.simulate.baselines.llama_server import NUM_SLOTS, LlamaServer
from lab.simulate.baselines.marconi import marconi
from lab.simulate.baselines.optimum import Optimum
from lab.simulate.baselines.sglang import Sglang
from lab.simulate.baselines.vllm import Vllm
from lab.simulate.leftoff_scheme import OwnCache
from lab.simulate.llm import Llm
from lab.simulate.policies import POLICIES
from lab.simulate.scheme import Budget, Scheme
from lab.simulate.trace import Trace
from leftoff.cache.policy import Policy, ValuePerByte

Maker = Callable[[Llm, Trace, Budget], Scheme]


def _own(policy: type[Policy], llm: Llm, trace: Trace, budget: Budget) -> Scheme:
    return OwnCache(llm, trace.block_tokens, budget, policy)


def _own_slots(llm: Llm, trace: Trace, budget: Budget) -> Scheme:
    return OwnCache(llm, trace.block_tokens, budget, ValuePerByte, num_slots=NUM_SLOTS)


def _marconi(alpha: float, llm: Llm, trace: Trace, budget: Budget) -> Scheme:
    return marconi(llm, trace.block_tokens, budget, alpha)


def _llama_server(counts_slots: bool, llm: Llm, trace: Trace, budget: Budget) -> Scheme:
    return LlamaServer(llm, trace.block_tokens, budget, counts_slots=counts_slots)


def _recency(cache: type[Vllm] | type[Sglang], llm: Llm, trace: Trace, budget: Budget) -> Scheme:
    return cache(llm, trace.block_tokens, budget, trace.num_ids)


SCHEMES: dict[str, Maker] = {
    "leftoff": partial(_own, ValuePerByte),
    "llama-server": partial(_llama_server, True),
    "vllm": partial(_recency, Vllm),
    "sglang": partial(_recency, Sglang),
    "marconi": partial(_marconi, 0.5),
    "optimum": Optimum,
    "leftoff-slots": _own_slots,
    "llama-server-slots": partial(_llama_server, False),
    **{f"leftoff-{name}": partial(_own, policy) for name, policy in POLICIES.items() if policy is not ValuePerByte},
    **{f"marconi-{alpha:g}": partial(_marconi, alpha) for alpha in (0.1, 2.0)},
}
USUAL = tuple(SCHEMES)[:8]
