"""One request's stay in a slot, from `Cache.begin` to `Cache.finish`."""

from bisect import bisect_right
from dataclasses import dataclass, field

from leftoff.cache.report import ReuseReport
from leftoff.cache.sequences import EngineSequence
from leftoff.picture_tokens import PictureSpan, uncut
from leftoff.types import Logits, Prompt, Tokens


@dataclass(eq=False)
class Turn:
    """Tells the scheduler how far the prompt is read, and where its prefill pauses for snapshots."""

    prompt: Prompt
    sequence: EngineSequence = field(repr=False)
    report: ReuseReport
    snapshot_positions: tuple[int, ...]  # of the prompt
    durable_positions: frozenset[int] = frozenset()  # those whose resume points are written to disk
    reply_gap: int | None = None  # tokens between snapshots of the reply
    logits: Logits | None = None  # of the prompt's last token, if they were cached: then there is nothing to prefill
    grid: int | None = None  # chunks of the prompt end at its multiples

    @property
    def seq(self) -> int:
        return self.sequence.seq

    @property
    def position(self) -> int:
        return self.sequence.length

    @property
    def is_reading(self) -> bool:
        """Part of the prompt is still to be prefilled."""
        return self.position < self.prompt.length

    @property
    def is_durable(self) -> bool:
        """A resume point at its position is worth writing to disk."""
        return self.position in self.durable_positions

    def wants_snapshot(self, num_tokens: int) -> bool:
        """After so many new tokens: at chosen positions of the prompt, and every `reply_gap` tokens of the reply."""
        replied = self.position - self.prompt.length
        if replied <= 0:
            return num_tokens > 0 and self.position in self.snapshot_positions
        return self.reply_gap is not None and replied % self.reply_gap < num_tokens

    def next_chunk(self, limit: int) -> Tokens:
        """The tokens of the prompt to decode next, at most `limit`; but a picture is decoded whole."""
        start = self.position
        end = self.next_chunk_end if self.next_picture is not None else min(self.next_chunk_end, start + limit)
        return self.prompt.tokens[start:end]

    @property
    def next_picture(self) -> PictureSpan | None:
        """The picture that is to be decoded next. None if that is text."""
        return next((span for span in self.prompt.pictures if span.start == self.position), None)

    @property
    def next_chunk_end(self) -> int:
        """Where the next chunk of the prompt must end at the latest."""
        index = bisect_right(self.snapshot_positions, self.position)
        position = self.snapshot_positions[index] if index < len(self.snapshot_positions) else self.prompt.length
        if self.position < self.prompt.adapted_from:
            position = min(position, self.prompt.adapted_from)
        for span in self.prompt.pictures:
            if span.start == self.position:
                return span.end
            if span.start > self.position:
                position = min(position, span.start)
        return min(position, (self.position // self.grid + 1) * self.grid) if self.grid else position

    def ends_chunk(self, num_tokens: int) -> bool:
        """Whether the prompt is read, or a snapshot is taken, after so many more tokens."""
        return self.position + num_tokens >= self.next_chunk_end

    def add_snapshot_position(self, position: int) -> None:
        """Another request will resume there."""
        position = uncut(self.prompt.pictures, position)
        if self.position < position < self.prompt.length and position not in self.snapshot_positions:
            self.snapshot_positions = tuple(sorted({*self.snapshot_positions, position}))
            self.durable_positions |= {position}
