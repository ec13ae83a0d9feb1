"""One request's stay in a slot, from `Cache.begin` to `Cache.finish`."""

from bisect import bisect_right
from dataclasses import dataclass, field

from leftoff.cache.report import ReuseReport
from leftoff.cache.sequences import EngineSequence
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
        """The tokens of the prompt to decode next, at most `limit`."""
        start = self.position
        return self.prompt.tokens[start : min(self.next_chunk_end, start + limit)]

    @property
    def next_chunk_end(self) -> int:
        """Where the next chunk of the prompt must end at the latest."""
        index = bisect_right(self.snapshot_positions, self.position)
        position = self.snapshot_positions[index] if index < len(self.snapshot_positions) else self.prompt.length
        return min(position, (self.position // self.grid + 1) * self.grid) if self.grid else position

    def ends_chunk(self, num_tokens: int) -> bool:
        """After so many more tokens, the prompt is read or a snapshot is taken."""
        return self.position + num_tokens >= self.next_chunk_end

    def add_snapshot_position(self, position: int) -> None:
        """Another request will resume there."""
        if self.position < position < self.prompt.length and position not in self.snapshot_positions:
            self.snapshot_positions = tuple(sorted({*self.snapshot_positions, position}))
            self.durable_positions |= {position}
