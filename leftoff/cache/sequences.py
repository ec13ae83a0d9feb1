"""The sequences of one engine. An idle one keeps its tokens until it is resumed, overwritten or dropped."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from enum import Enum

import numpy as np

from leftoff.cache.budget import ByteBudget
from leftoff.cache.node import ResumePoint
from leftoff.cache.tree import common_prefix
from leftoff.engine.memory.base import Memory
from leftoff.types import Tokens

_FIRST_CAPACITY = 1024
_HALF_LIFE_S = 12.0


class SequenceState(Enum):
    """A sequence is used by a request, or idle; if idle, its tokens were offered to RAM and disk, or not yet."""

    EMPTY = "empty"  # idle, no tokens
    RUNNING = "running"  # a request decodes into it
    UNSAVED = "unsaved"  # idle; what it computed last was not offered to the tiers yet
    SAVED = "saved"  # idle; the tiers have copied as much of it as they had room for


class EngineSequence:
    """One sequence of the engine, its tokens, and what it shares with its copy in RAM.

    `has_ram_pages`: RAM may hold pages of it as well; they are the first to go when RAM is short of room.
    `point`: the last resume point in RAM that it was restored from or left behind. Eviction does not take it for the
    end of a conversation at rest while a sequence goes on from it.

    Both, and the state, change by these transitions and in no other place:

    transition       | called when                               | from    | to               | has_ram_pages  | point
    ---------------- | ----------------------------------------- | ------- | ---------------- | -------------- | -----
    `start`          | a request was given the sequence          | idle    | RUNNING          | yes            | given
    `append`         | tokens were decoded                       | RUNNING | RUNNING          | same           | same
    `leave_point`    | a resume point was saved, or could not be | RUNNING | RUNNING          | yes with pages | given
    `finish`         | the request has ended                     | RUNNING | UNSAVED or EMPTY | same           | same
    `written_behind` | copied while idle; it stays in the engine | idle    | SAVED            | yes            | same
    `written_in_part`| a request came while it was copied        | idle    | same             | yes            | same
    `saved`          | saved as far as possible, before it goes  | idle    | SAVED            | no             | none
    `drop_pages`     | RAM has given up its pages of it          | any     | same             | no             | same
    `truncate`       | the engine keeps only its beginning       | idle    | UNSAVED or EMPTY | same           | same
    `clear`          | the engine has dropped it                 | idle    | EMPTY            | no             | none

    EMPTY has neither pages in RAM nor a point, however it is reached.
    """

    def __init__(self, seq: int, ram: ByteBudget) -> None:
        self.seq = seq
        self.state = SequenceState.EMPTY
        self.namespace = ""
        self.length = 0
        self.last_used = 0.0
        self.has_ram_pages = False
        self.ahead_from: int | None = None  # what follows was read ahead, and no request has gone on from it yet
        self.num_changes = 0  # of its state and tokens: a plan made before the last one is stale
        self._ram = ram
        self._point: weakref.ref[ResumePoint] | None = None  # a plain reference would keep evicted bytes
        self._tokens: Tokens = np.empty(_FIRST_CAPACITY, np.int32)

    def __repr__(self) -> str:
        return f"sequence {self.seq}, {self.state.value}, {self.length} tokens"

    @property
    def is_busy(self) -> bool:
        return self.state is SequenceState.RUNNING

    @property
    def is_saved(self) -> bool:
        """The tiers have as much of it as they had room for."""
        return self.state in (SequenceState.SAVED, SequenceState.EMPTY)

    @property
    def is_empty(self) -> bool:
        return self.length == 0

    @property
    def tokens(self) -> Tokens:
        return self._tokens[: self.length]

    @property
    def point(self) -> ResumePoint | None:
        return self._point() if self._point is not None else None

    def shared_with(self, tokens: Tokens) -> int:
        """The length of the common prefix."""
        size = min(self.length, tokens.size)
        if size == 0 or self._tokens[0] != tokens[0]:
            return 0
        return common_prefix(self._tokens[:size], tokens[:size])

    # --- transitions

    def start(self, tokens: Tokens, namespace: str, point: ResumePoint | None = None) -> None:
        """The engine holds `tokens` in it now, restored from `point` unless they were there already."""
        self._hold(tokens, namespace)
        self._become(SequenceState.RUNNING)
        self.has_ram_pages = True
        self.ahead_from = None
        if point is not None:
            self._go_on_from(point)

    def append(self, tokens: Tokens) -> None:
        assert self.is_busy, f"{self}: no request runs in it"
        self._extend(tokens)

    def leave_point(self, point: ResumePoint | None, *, with_pages: bool) -> None:
        """Goes on from the point that RAM saved here. It is None if there was no room: then it has no last one."""
        self._go_on_from(point)
        self.has_ram_pages |= with_pages

    def finish(self, length: int, now: float) -> None:
        """The engine holds `length` tokens of it."""
        assert self.is_busy, f"{self}: no request runs in it"
        self.state = SequenceState.UNSAVED
        self.last_used = now
        self.truncate(length)

    def written_behind(self) -> None:
        self._become(SequenceState.SAVED)
        self.has_ram_pages = True

    def written_in_part(self) -> None:
        self.has_ram_pages = True

    def saved(self) -> None:
        self._become(SequenceState.SAVED)
        self.has_ram_pages = False
        self._go_on_from(None)

    def drop_pages(self) -> None:
        self.has_ram_pages = False

    def truncate(self, length: int) -> None:
        if not length:
            self.clear()
            return
        self.length = length
        self._become(SequenceState.UNSAVED)

    def clear(self) -> None:
        self.length = 0
        self._become(SequenceState.EMPTY)
        self.has_ram_pages = False
        self._go_on_from(None)

    def _become(self, state: SequenceState) -> None:
        assert not self.is_busy, f"{self}: a request runs in it"
        self.state = state
        self.num_changes += 1

    def _extend(self, tokens: Tokens) -> None:
        end = self.length + tokens.size
        if end > self._tokens.size:
            self._tokens = np.resize(self._tokens, 2 * end)
        self._tokens[self.length : end] = tokens
        self.length = int(end)
        self.num_changes += 1

    def _hold(self, tokens: Tokens, namespace: str) -> None:
        self.length = 0
        self._extend(tokens)
        self.namespace = namespace

    def _go_on_from(self, point: ResumePoint | None) -> None:
        """A point on disk, or one made up for a plan, is not RAM's to keep."""
        is_held = self._ram.move_sequence(self.point, point)
        self._point = weakref.ref(point) if point is not None and is_held else None


Shared = dict[EngineSequence, int]  # the common prefix of each with a prompt


class SequenceTable:
    """All sequences of the engine, by their number. At most `num_slots` of them run at the same time.

    If there are more, idle ones stay in the engine while other requests run, and are the fastest to resume from.
    """

    def __init__(self, memory: Memory, num_slots: int, clock: Callable[[], float], ram: ByteBudget) -> None:
        self.num_slots = min(num_slots, memory.num_sequences)
        self._all = [EngineSequence(seq, ram) for seq in range(memory.num_sequences)]
        self._clock = clock

    def __iter__(self) -> Iterator[EngineSequence]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, seq: int) -> EngineSequence:
        return self._all[seq]

    @property
    def num_changes(self) -> int:
        return sum(sequence.num_changes for sequence in self._all)

    @property
    def num_free_slots(self) -> int:
        """How many more requests may run."""
        return self.num_slots - self.num_busy

    @property
    def num_busy(self) -> int:
        return sum(sequence.is_busy for sequence in self._all)

    @property
    def idle(self) -> list[EngineSequence]:
        return [sequence for sequence in self._all if not sequence.is_busy]

    def parked(self, kept: Sequence[EngineSequence | None] = ()) -> list[EngineSequence]:
        """The idle sequences that hold tokens, but for those to be kept."""
        return [each for each in self._all if not each.is_busy and not each.is_empty and each not in kept]

    @property
    def slots(self) -> list[EngineSequence]:
        """As many sequences as there are slots: those that run, then those used last."""
        latest = sorted(self._all, key=lambda each: (each.is_busy, each.last_used, -each.seq), reverse=True)
        return sorted(latest[: self.num_slots], key=lambda each: each.seq)

    def is_alone(self, sequence: EngineSequence) -> bool:
        """Whether all other sequences are empty."""
        return all(other is sequence or other.is_empty for other in self._all)

    def shared_with(self, tokens: Tokens, namespace: str) -> Shared:
        """The sequences of a namespace that have a prefix in common with a prompt, and how long it is."""
        return {
            sequence: common
            for sequence in self._all
            if sequence.namespace == namespace and (common := sequence.shared_with(tokens))
        }

    def to_overwrite(self, price: Callable[[EngineSequence], float]) -> EngineSequence:
        """The idle sequence to overwrite: an empty one, else the cheapest, else the least recently used.

        A price, of bringing it back, is discounted by the time since it was used. There must be an idle one.
        """
        idle = self.idle

        def loss(sequence: EngineSequence) -> tuple[bool, float, float]:
            if sequence.is_empty:
                return False, 0.0, sequence.last_used
            return True, price(sequence) * self.chance_of_return(sequence), sequence.last_used

        return min(idle, key=loss) if len(idle) > 1 else idle[0]

    def chance_of_return(self, sequence: EngineSequence) -> float:
        """How likely a conversation goes on soon: the longer it has rested, the less."""
        return 1 / (1 + (self._clock() - sequence.last_used) / _HALF_LIFE_S)

    def next_to_drop(self, kept: Sequence[EngineSequence | None] = ()) -> EngineSequence | None:
        """The sequence to drop when cells run out: of the idle ones the least recently used."""
        return min(self.parked(kept), key=lambda each: each.last_used, default=None)
