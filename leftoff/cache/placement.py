"""Where snapshots are taken. A snapshot costs a copy, a cut in the prefill, and bytes; it earns replay time.

Some positions are known to be shared or resumed from:

    [ header )[ ··· )[ user )[ assistant )[ last user )[ generation prompt )
             ^                            ^           ^                    ^
             every conversation           an edit     the next turn, if    regenerate
                                                      the reply changes

a blank line near the end of a long message, where a question may follow a document, and the place where a prompt
leaves a known path, which is proven to be shared. Between them snapshots stand as close
as costs little: a change in the middle of a long text then replays a short stretch. What turns out to be of no use is
the first that the eviction takes. Replies get snapshots too, by the same measure.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from leftoff.cache.costs import Costs
from leftoff.types import Prompt

_TRIAL = 4


@dataclass(frozen=True)
class Placement:
    """How dense. The defaults spend at most 1 % of the prefill on copies, and bound a replay to two seconds."""

    overhead: float = 0.01
    smallest_gap: int = 64
    smallest_reply_gap: int = 32
    longest_replay_ms: float = 2000.0
    piece_tokens: int = 512  # what the scheduler reads at once
    slack: int = 16  # a position this close behind the resume point is not worth a cut of its own
    grid: int | None = None  # snapshots are taken at its multiples alone

    def gap(self, snapshot_bytes: int, costs: Costs) -> int:
        """Tokens between snapshots inside a long stretch."""
        if costs.pieces.per_piece_ms is None and costs.pieces.mean_tokens:
            # Only pieces of different sizes show what a pause costs: after small ones, try larger ones.
            return self.smallest_gap * (_TRIAL if costs.pieces.mean_tokens < 2 * self.smallest_gap else 1)
        cheap = (costs.save_ms(snapshot_bytes) + costs.cut_ms) * costs.prefill_tokens_per_ms / self.overhead
        bounded = self.longest_replay_ms * costs.prefill_tokens_per_ms
        gap = max(self.smallest_gap, int(min(cheap, bounded)))
        # prompts are read in pieces anyway: where snapshots stand far apart, they stand at the ends of pieces; where
        # they do not, pieces are even, since kernels pad the others
        if gap < self.piece_tokens:
            return gap - gap % self.smallest_gap
        return -(-gap // self.piece_tokens) * self.piece_tokens

    def reply_gap(self, snapshot_bytes: int, costs: Costs) -> int | None:
        """Tokens between snapshots inside a reply: clients shorten replies, and go on from the middle of them.

        None with a grid: what the model wrote is not resumed from there.
        """
        if self.grid:
            return None
        cheap = costs.save_ms(snapshot_bytes) / costs.step_ms / self.overhead
        return max(self.smallest_reply_gap, int(cheap))

    def marks(self, prompt: Prompt, shared: Iterable[int], stops: Sequence[int]) -> frozenset[int]:
        """The positions that are worth a disk's time: others are known to resume from them, also after a restart.

        The stop before each is one too: what changes in a header or a conversation often changes near its end.
        """
        end = prompt.messages_end or prompt.length
        wanted = (prompt.header_end, prompt.last_user_start, end, *shared)
        marks = [self.on_grid(mark) for mark in wanted if mark]
        before = [bisect_left(stops, mark) - 1 for mark in marks]
        return frozenset((*marks, *(stops[index] for index in before if index >= 0)))

    def stops(
        self, prompt: Prompt, resume: int, shared: Iterable[int], gap: int, *, is_scarce: bool = False
    ) -> tuple[int, ...]:
        """The positions, rising, at which a snapshot is taken: the resume point itself, or where the prefill pauses.

        The last is the prompt's end.
        """
        marks = (prompt.header_end, prompt.last_user_start, *prompt.breaks, *shared)
        soft = {self._near(mark, resume) for mark in marks}
        wanted = sorted(mark for mark in soft | {prompt.messages_end, prompt.length} if mark and resume <= mark)
        stops: list[int] = []
        last = resume
        for mark in wanted:
            stops += _widening(last, mark, gap) if is_scarce else self._between(prompt, last, mark, gap)
            stops.append(mark)
            last = mark
        if self.grid:
            return tuple(sorted({stop for stop in map(self.on_grid, stops) if stop > resume}))
        return tuple(stops)

    def on_grid(self, position: int) -> int:
        """The last position of the grid up to this one."""
        return position - position % self.grid if self.grid else position

    def _near(self, mark: int | None, resume: int) -> int | None:
        if mark is None or not resume < mark <= resume + self.slack:
            return mark
        return resume or None

    def _between(self, prompt: Prompt, start: int, end: int, gap: int) -> list[int]:
        """Positions in a stretch, at least half a gap apart from its ends; at a message's end where one is near."""
        ends = [message.end for message in prompt.messages if start < message.end < end]
        stops = []
        while end - start >= gap + gap // 2:
            near = [position for position in ends if start + gap // 2 <= position <= start + gap]
            start = near[-1] if near else start + gap
            stops.append(start)
        return stops


def _widening(start: int, end: int, gap: int) -> list[int]:
    """Twice as far apart with each step back from the end: what changes in a text mostly changes near its end."""
    stops = []
    while end - start > gap + gap // 2:
        end -= gap
        gap *= 2
        stops.append(end)
    return stops[::-1]
