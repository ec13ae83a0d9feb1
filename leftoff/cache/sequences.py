"""The sequences in the engine: the slots that serve requests, and the spare ones where states are parked."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from leftoff.cache.resume_point import ResumePoint
from leftoff.cache.tree import common_prefix
from leftoff.engine.memory.base import Memory
from leftoff.types import Tokens

_FIRST_CAPACITY = 1024
_HALF_LIFE_S = 60.0


@dataclass(eq=False)
class EngineSequence:
    """One sequence and the tokens it holds."""

    seq: int
    is_slot: bool
    namespace: str = ""
    is_busy: bool = False
    is_saved: bool = True  # as much of it as there is room for
    is_doubled: bool = False  # pages of it may be in RAM as well
    last_used: float = 0.0
    length: int = 0
    _point: weakref.ref[ResumePoint] | None = field(default=None, repr=False)
    _tokens: Tokens = field(default_factory=lambda: np.empty(_FIRST_CAPACITY, np.int32), repr=False)

    @property
    def point(self) -> ResumePoint | None:
        """The last resume point in RAM that it came from or left behind, while it is there."""
        return self._point() if self._point is not None else None

    @point.setter
    def point(self, point: ResumePoint | None) -> None:
        # a plain reference would keep its bytes when it is evicted
        self._point = weakref.ref(point) if point is not None else None

    @property
    def tokens(self) -> Tokens:
        return self._tokens[: self.length]

    @property
    def is_empty(self) -> bool:
        return self.length == 0

    def append(self, tokens: Tokens) -> None:
        end = self.length + tokens.size
        if end > self._tokens.size:
            self._tokens = np.resize(self._tokens, 2 * end)
        self._tokens[self.length : end] = tokens
        self.length = int(end)

    def replace(self, tokens: Tokens, namespace: str) -> None:
        self.length = 0
        self.append(tokens)
        self.namespace = namespace

    def shared_with(self, tokens: Tokens) -> int:
        """How many tokens it shares with another sequence."""
        size = min(self.length, tokens.size)
        if size == 0 or self._tokens[0] != tokens[0]:
            return 0
        return common_prefix(self._tokens[:size].tobytes(), tokens[:size].tobytes())


Shared = dict[EngineSequence, int]


class SequenceTable:
    """Slots first, then spares. Their order in the engine is their number."""

    def __init__(self, memory: Memory, num_slots: int, clock: Callable[[], float]) -> None:
        num_slots = min(num_slots, memory.num_sequences)
        self._all = [EngineSequence(seq, is_slot=seq < num_slots) for seq in range(memory.num_sequences)]
        self._clock = clock

    def __iter__(self) -> Iterator[EngineSequence]:
        return iter(self._all)

    def __getitem__(self, seq: int) -> EngineSequence:
        return self._all[seq]

    @property
    def slots(self) -> list[EngineSequence]:
        return [sequence for sequence in self._all if sequence.is_slot]

    @property
    def spares(self) -> list[EngineSequence]:
        return [sequence for sequence in self._all if not sequence.is_slot]

    def shared_with(self, tokens: Tokens, namespace: str) -> Shared:
        """How many tokens each sequence of a namespace shares with a prompt: those that share any."""
        shared = {sequence: sequence.shared_with(tokens) for sequence in self._all if sequence.namespace == namespace}
        return {sequence: common for sequence, common in shared.items() if common}

    @property
    def idle_slots(self) -> list[EngineSequence]:
        return [sequence for sequence in self.slots if not sequence.is_busy]

    def least_missed(self, price: Callable[[EngineSequence], int] = lambda _: 0) -> EngineSequence:
        """The idle slot to use next: an empty one, the cheapest to set aside, or the one used longest ago.

        A price counts less, the longer nobody has come back for it. There must be an idle slot.
        """
        idle, now = self.idle_slots, self._clock()

        def loss(sequence: EngineSequence) -> tuple[bool, float, float]:
            rested = 1 + (now - sequence.last_used) / _HALF_LIFE_S
            return not sequence.is_empty, 0.0 if sequence.is_empty else price(sequence) / rested, sequence.last_used

        return min(idle, key=loss) if len(idle) > 1 else idle[0]

    def spare_to_use(self, besides: EngineSequence | None) -> EngineSequence | None:
        spares = [sequence for sequence in self.spares if sequence is not besides]
        return min(spares, key=lambda sequence: (not sequence.is_empty, sequence.last_used), default=None)

    def droppable(self, kept: Sequence[EngineSequence | None] = ()) -> EngineSequence | None:
        """What goes first when cells run out: parked states, then idle slots."""
        idle = [
            sequence
            for sequence in self._all
            if not sequence.is_busy and not sequence.is_empty and sequence not in kept
        ]
        return min(idle, key=lambda sequence: (sequence.is_slot, sequence.last_used), default=None)

    def use(self, sequence: EngineSequence) -> None:
        sequence.last_used = self._clock()
