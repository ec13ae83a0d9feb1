"""The server's own cache under a trace: the code that serves, over a memory on paper, by the clock of the trace.

The cache counts in positions. Here a position is a block, so rates and distances are given in blocks.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from lab.simulate.llm import Llm
from lab.simulate.memory import PaperMemory
from lab.simulate.paper_blob_store import PaperBlobStore
from lab.simulate.scheme import Budget, Served
from lab.simulate.trace import Request
from leftoff.cache.blob_tier import TierSettings
from leftoff.cache.cache import Cache
from leftoff.cache.costs import Costs
from leftoff.cache.placement import Placement
from leftoff.cache.policy import Policy
from leftoff.cache.restore import Stay
from leftoff.types import Logits, MessageSpan, Prompt, Tokens

_NUM_CELLS = 1 << 30  # the context is not what is simulated
_PAGE_TOKENS = 8192  # longer pages than a server's: the fewer there are, the faster it goes
_LOGITS: Logits = np.empty(0, np.float32)


class GivenCosts(Costs):
    """Costs that stay as they are given: a memory on paper takes no time that could be measured."""

    def saw_load(self, nbytes: int, ms: float) -> None: ...
    def saw_save(self, nbytes: int, ms: float) -> None: ...

    def saw_snapshot(self, nbytes: int, ms: float) -> None: ...


class OwnCache:
    """Implements `Scheme`."""

    def __init__(
        self,
        llm: Llm,
        block_tokens: int,
        budget: Budget,
        policy: Callable[[], Policy],
        placement: Placement | None = None,
        page_tokens: int = _PAGE_TOKENS,
        num_slots: int = 1,
        blobs: PaperBlobStore | None = None,
    ) -> None:
        self._now = 0.0
        self._blobs = blobs or PaperBlobStore()
        self._blobs.costs.bytes_per_ms = llm.disk_bytes_per_s / 1000
        cell_bytes = llm.bytes_per_token * block_tokens
        self._memory = PaperMemory(
            llm.kind, cell_bytes, llm.snapshot_bytes, num_sequences=num_slots, num_cells=_NUM_CELLS
        )
        self.cache = Cache(
            self._memory,
            num_slots=num_slots,
            budget_bytes=budget.ram_bytes,
            tiers=[TierSettings(self._blobs, budget.disk_bytes, policy())] if budget.disk_bytes else [],
            policy=policy(),
            placement=in_blocks(placement or Placement(), block_tokens),
            costs=costs_of(llm, block_tokens),
            clock=lambda: self._now,
            page_tokens=max(1, page_tokens // block_tokens),
            # what idle neighbours cost is counted for nobody
            stay=Stay.ALWAYS if num_slots > 1 else Stay.NEVER,
        )

    @property
    def held_bytes(self) -> int:
        return sum(tier.budget.used_bytes for tier in self.cache.tiers)

    def serve(self, request: Request, blocks: Tokens) -> Served:
        self._now = request.time_s
        self._memory.loaded_bytes = self._memory.saved_bytes = self._blobs.read_bytes = 0
        turn = self.cache.begin(Prompt(blocks, _messages(request, blocks.size)))
        assert turn is not None
        served = Served(turn.report.reused, self._memory.loaded_bytes, self._blobs.read_bytes, self._memory.saved_bytes)
        while turn.is_reading:
            chunk = blocks[turn.position : turn.next_chunk_end]
            self._memory.extend(turn.seq, chunk.size)
            self.cache.advance(turn, chunk, _LOGITS)
        self.cache.finish(turn)
        self.cache.save_idle()  # between requests there is time
        return served


def costs_of(llm: Llm, block_tokens: int) -> Costs:
    return GivenCosts(
        prefill_tokens_per_ms=llm.prefill_tokens_per_s / 1000 / block_tokens,
        load_bytes_per_ms=llm.load_bytes_per_s / 1000,
        save_bytes_per_ms=llm.save_bytes_per_s / 1000,
    )


def in_blocks(placement: Placement, block_tokens: int) -> Placement:
    return replace(
        placement,
        smallest_gap=max(1, placement.smallest_gap // block_tokens),
        smallest_reply_gap=max(1, placement.smallest_reply_gap // block_tokens),
        chunk_tokens=max(1, placement.chunk_tokens // block_tokens),
        lone_chunk_tokens=max(1, placement.lone_chunk_tokens // block_tokens),
        largest_reply_gap=max(1, placement.largest_reply_gap // block_tokens),
        largest_last_gap=max(1, placement.largest_last_gap // block_tokens),
        near_tokens=placement.near_tokens // block_tokens,
        slack=placement.slack // block_tokens,
    )


def _messages(request: Request, num_blocks: int) -> tuple[MessageSpan, ...]:
    """All that a trace tells of the messages is where the header ends."""
    if not 0 < request.header_blocks < num_blocks:
        return ()
    header = MessageSpan("system", 0, request.header_blocks)
    return header, MessageSpan("user", request.header_blocks, num_blocks)
