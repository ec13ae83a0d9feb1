"""One request's stay in a slot."""

from bisect import bisect_right
from dataclasses import dataclass, field

from leftoff.cache.report import ReuseReport
from leftoff.cache.sequences import EngineSequence
from leftoff.types import Logits, Prompt


@dataclass(eq=False)
class Turn:
    """What the driver of the engine must know. `logits` are there when the prompt needs no compute at all."""

    prompt: Prompt
    sequence: EngineSequence = field(repr=False)
    report: ReuseReport
    stops: tuple[int, ...]
    marks: frozenset[int] = frozenset()  # those of the stops that others are known to resume from
    reply_gap: int | None = None
    logits: Logits | None = None
    grid: int | None = None  # pieces of the prompt end at its multiples

    @property
    def seq(self) -> int:
        return self.sequence.seq

    @property
    def position(self) -> int:
        return self.sequence.length

    @property
    def is_reading(self) -> bool:
        """Part of the prompt is still to be computed."""
        return self.position < self.prompt.length

    @property
    def wants_snapshot(self) -> bool:
        """A snapshot is wanted here: at a stop of the prompt, or every so many tokens of the reply."""
        replied = self.position - self.prompt.length
        if replied <= 0:
            return self.position in self.stops
        return self.reply_gap is not None and replied % self.reply_gap == 0

    def add_snapshot_position(self, position: int) -> None:
        """Somebody else will want to resume here."""
        if self.position < position < self.prompt.length and position not in self.stops:
            self.stops = tuple(sorted({*self.stops, position}))
            self.marks |= {position}

    @property
    def next_piece_end(self) -> int:
        """Where the next piece of the prompt must end at the latest."""
        index = bisect_right(self.stops, self.position)
        stop = self.stops[index] if index < len(self.stops) else self.prompt.length
        return min(stop, (self.position // self.grid + 1) * self.grid) if self.grid else stop
