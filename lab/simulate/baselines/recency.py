"""Attention blocks and recurrent states under least-recently-used eviction: what vLLM and SGLang have in common.

What a request used last belongs to its *turn*. A later request takes the beginning of it over, so the blocks of a turn
are always the end of a path, and evicting turn by turn, each from its end, never breaks one:

    turn 7   [ ············ header and chat ············ )
    turn 9   [ ··· header ··· )                             takes over; turn 7 keeps [ ··· chat ··· )

Where states are put is what the two servers differ in.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from lab.simulate.llm import Llm
from lab.simulate.scheme import Budget, Served
from lab.simulate.trace import Request
from leftoff.types import Tokens

_NEVER = -1


@dataclass(slots=True)
class Turn:
    """What was used last by one request: so many blocks, the first of them still there, and states by block id."""

    num_blocks: int = 0
    states: list[int] = field(default_factory=list)
    on_disk: bool = False


class RecencyCache:
    """Implements `Scheme`. Subclasses say where states are put, and what a hit touches."""

    grid_blocks = 1
    touches_path = True

    def __init__(self, llm: Llm, block_tokens: int, budget: Budget, num_ids: int) -> None:
        self._budget = budget
        self._block_tokens = block_tokens
        self._cell_bytes = llm.bytes_per_token * block_tokens
        self._state_bytes = llm.snapshot_bytes
        self._block_turns = np.full(num_ids, _NEVER, np.int64)
        self._state_turns = np.full(num_ids, _NEVER, np.int64)
        self._turns: dict[int, Turn] = {}  # the least recent first
        self._num_turns = 0
        self._ram_bytes = self._disk_bytes = 0

    @property
    def held_bytes(self) -> int:
        return self._ram_bytes + self._disk_bytes

    def places(self, resumed: int, known: int, length: int) -> list[int]:
        """Where states are put: the prompt was resumed at one position, its attention is known up to another."""
        raise NotImplementedError

    def serve(self, request: Request, blocks: Tokens) -> Served:  # noqa: ARG002
        known = self._known(blocks)
        states = self._states(blocks[:known])
        resumed = int(states[-1]) if states.size else 0
        touched = states if self.touches_path else states[-1:]
        served = self._loading(blocks[:resumed], resumed)
        self._take_over(blocks, touched)
        self._add_states(blocks, self.places(resumed, known, int(blocks.size)))
        self._num_turns += 1
        self._shrink()
        return served

    # --- finding

    def _known(self, blocks: Tokens) -> int:
        """How far attention is there without a gap."""
        known = 0
        for start, end, number in self._runs(blocks):
            turn = self._turns.get(number)
            there = min(end - start, turn.num_blocks) if turn else 0
            known += there
            if there < end - start:
                break
        return known

    def _runs(self, blocks: Tokens) -> Iterator[tuple[int, int, int]]:
        """The path by the turns that used it last, as (start, end, turn)."""
        if not blocks.size:
            return
        numbers = self._block_turns[blocks]
        cuts = (0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), blocks.size)
        for start, end in pairwise(cuts):
            if numbers[start] != _NEVER:
                yield start, end, int(numbers[start])

    def _states(self, blocks: Tokens) -> Tokens:
        """The positions of the states on a path, rising."""
        if not self._state_bytes:
            return np.array([blocks.size // self.grid_blocks * self.grid_blocks], np.int32)
        return (np.flatnonzero(self._state_turns[blocks] != _NEVER) + 1).astype(np.int32)

    def _loading(self, blocks: Tokens, resumed: int) -> Served:
        ram = disk = 0
        for start, end, number in self._runs(blocks):
            nbytes = (end - start) * self._cell_bytes
            ram += nbytes
            disk += nbytes if self._turns[number].on_disk else 0
        if resumed and self._state_bytes:
            ram += self._state_bytes
            disk += self._state_bytes if self._turns[int(self._state_turns[blocks[-1]])].on_disk else 0
        return Served(resumed, ram, disk)

    # --- keeping

    def _take_over(self, blocks: Tokens, touched: Tokens) -> None:
        for start, end, number in list(self._runs(blocks)):
            turn = self._turns.get(number)
            if turn is not None:
                taken = min(end - start, turn.num_blocks)
                turn.num_blocks -= taken
                self._count(turn, -taken * self._cell_bytes)
        for block in blocks[touched - 1].tolist() if self._state_bytes else ():
            self._drop_state(block)
        turn = self._turns[self._num_turns] = Turn(int(blocks.size))
        self._count(turn, turn.num_blocks * self._cell_bytes)
        self._block_turns[blocks] = self._num_turns
        self._add_states(blocks, touched.tolist())

    def _add_states(self, blocks: Tokens, positions: list[int]) -> None:
        turn = self._turns[self._num_turns]
        for position in positions if self._state_bytes else ():
            block = int(blocks[position - 1])
            if position > 0 and self._state_turns[block] == _NEVER:
                turn.states.append(block)
                self._state_turns[block] = self._num_turns
                self._count(turn, self._state_bytes)

    def _drop_state(self, block: int) -> None:
        turn = self._turns[int(self._state_turns[block])]
        turn.states.remove(block)
        self._state_turns[block] = _NEVER
        self._count(turn, -self._state_bytes)

    def _count(self, turn: Turn, nbytes: int) -> None:
        if turn.on_disk:
            self._disk_bytes += nbytes
        else:
            self._ram_bytes += nbytes

    # --- evicting

    def _shrink(self) -> None:
        """What RAM cannot hold goes to disk, turn by turn; what nothing can hold goes for good, the end first."""
        for turn in list(self._turns.values()) if self._budget.disk_bytes else ():
            if self._ram_bytes <= self._budget.ram_bytes:
                break
            if not turn.on_disk:
                self._demote(turn)
        while self.held_bytes > self._budget.nbytes:
            self._evict(*next(iter(self._turns.items())))

    def _demote(self, turn: Turn) -> None:
        nbytes = turn.num_blocks * self._cell_bytes + len(turn.states) * self._state_bytes
        turn.on_disk = True
        self._ram_bytes -= nbytes
        self._disk_bytes += nbytes

    def _evict(self, number: int, turn: Turn) -> None:
        if turn.states:
            self._drop_state(turn.states[-1])
        elif turn.num_blocks:
            excess = -(-(self.held_bytes - self._budget.nbytes) // self._cell_bytes)
            gone = min(excess, turn.num_blocks)
            turn.num_blocks -= gone
            self._count(turn, -gone * self._cell_bytes)
        else:
            del self._turns[number]
