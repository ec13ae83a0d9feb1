"""llama-server: a list of checkpoints per slot, and whole copies of slots in RAM, first in, first out.

A prompt takes the slot that shares most with it, if that is more than a tenth of the prompt, else the one used longest
ago. If it keeps less than half of what the slot holds, the slot is copied to RAM, and RAM is searched for something
better, of which at least a quarter must fit; that is moved out. What lies behind the resume point is erased.
"""

from collections import deque
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np

from lab.simulate.llm import Llm
from lab.simulate.scheme import Budget, Served
from lab.simulate.trace import Request
from leftoff.cache.tree import common_prefix
from leftoff.types import Tokens

NUM_SLOTS = 4
_MAX_CHECKPOINTS = 32
_FROM_END_TOKENS = (4 + 512, 4)
_MIN_SIMILARITY = 0.1
_MIN_KEPT_OF_SLOT = 0.5
_MIN_KEPT_OF_COPY = 0.25


@dataclass(eq=False, slots=True)
class Held:
    """What a slot or a copy holds: blocks, and the positions of its checkpoints."""

    blocks: Tokens = field(default_factory=lambda: np.empty(0, np.int32))
    checkpoints: list[int] = field(default_factory=list)
    last_used: int = 0

    def shared_with(self, blocks: Tokens) -> int:
        return common_prefix(self.blocks, blocks)

    def resume(self, shared: int) -> int:
        """Its state stands at its end; before that, only checkpoints can be gone back to."""
        if shared == self.blocks.size:
            return shared
        return max((place for place in self.checkpoints if place <= shared), default=0)


class LlamaServer:
    """Implements `Scheme`.

    What rests in a slot counts like a copy, so that all schemes get the same bytes for what is at rest. Without
    `counts_slots` the budget is for copies alone, as llama-server's own flag means it: the slots come on top.
    """

    def __init__(self, llm: Llm, block_tokens: int, budget: Budget, *, counts_slots: bool = True) -> None:
        self._cell_bytes = llm.bytes_per_token * block_tokens
        self._state_bytes = llm.snapshot_bytes
        self._block_tokens = block_tokens
        self._budget_bytes = budget.ram_bytes
        self._counts_slots = counts_slots
        self._slots = [Held() for _ in range(NUM_SLOTS)]
        self._copies: deque[Held] = deque()
        self._num_turns = 0

    @property
    def held_bytes(self) -> int:
        return sum(map(self._nbytes, (*self._copies, *self._resting)))

    @property
    def _resting(self) -> list[Held]:
        """The slots that wait for their next prompt and count, the least recent first."""
        if not self._counts_slots:
            return []
        return sorted(self._slots, key=attrgetter("last_used"))[:-1]

    def serve(self, request: Request, blocks: Tokens) -> Served:
        index = self._choose_slot(blocks)
        slot, loaded, saved = self._slots[index], 0, 0
        shared = slot.shared_with(blocks)
        if slot.blocks.size and shared < _MIN_KEPT_OF_SLOT * slot.blocks.size:
            self._copies.append(slot)
            saved = self._nbytes(slot)
            found = self._find_copy(blocks, shared)
            if found is not None:
                self._copies.remove(found)
                loaded = self._nbytes(found)
            slot = self._slots[index] = found or Held()
            shared = slot.shared_with(blocks)
        resumed = slot.resume(shared)
        went_back = resumed and resumed < slot.blocks.size
        self._read(slot, request, blocks, resumed)
        self._shrink()
        return Served(resumed, loaded + (self._state_bytes if went_back else 0), saved_bytes=saved)

    def _choose_slot(self, blocks: Tokens) -> int:
        shares = [slot.shared_with(blocks) / blocks.size for slot in self._slots]
        best = max(range(NUM_SLOTS), key=shares.__getitem__)
        if shares[best] > _MIN_SIMILARITY:
            return best
        return min(range(NUM_SLOTS), key=lambda index: self._slots[index].last_used)

    def _find_copy(self, blocks: Tokens, better_than: int) -> Held | None:
        fitting = [(copy.shared_with(blocks), copy) for copy in self._copies]
        usable = [(shared, copy) for shared, copy in fitting if shared >= _MIN_KEPT_OF_COPY * copy.blocks.size]
        shared, best = max(usable, key=lambda pair: pair[0], default=(0, None))
        return best if shared > better_than else None

    def _shrink(self) -> None:
        while self._copies and self.held_bytes > self._budget_bytes:
            self._copies.popleft()
        while self.held_bytes > self._budget_bytes:
            slot = next(slot for slot in self._resting if slot.blocks.size)
            slot.blocks, slot.checkpoints = slot.blocks[:0], []

    def _read(self, slot: Held, request: Request, blocks: Tokens, resumed: int) -> None:
        self._num_turns += 1
        places = [(request.prompt_tokens - tokens) // self._block_tokens for tokens in _FROM_END_TOKENS]
        kept = [place for place in slot.checkpoints if place <= resumed]
        new = {min(place, int(blocks.size)) for place in places if place > resumed}
        slot.checkpoints = [*kept, *sorted(new)][-_MAX_CHECKPOINTS:] if self._state_bytes else [*range(blocks.size)]
        slot.blocks, slot.last_used = blocks, self._num_turns

    def _nbytes(self, held: Held) -> int:
        """A copy has the slot's attention and state, and its checkpoints."""
        num_states = 1 + len(held.checkpoints) if held.blocks.size else 0
        return held.blocks.size * self._cell_bytes + num_states * self._state_bytes
