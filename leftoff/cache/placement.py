"""Chooses the positions of a prompt where snapshots are taken.

A snapshot costs a copy, a pause of the prefill, and bytes; it saves prefill when a later prompt resumes there. Some
positions are known to be shared or resumed from:

    [ header )[ ··· )[ user )[ assistant )[ last user )[ generation prompt )
             ^                            ^           ^                    ^
             every conversation           an edit     the next turn, if    regenerate
                                                      the reply changes

so are blank lines near the end of a long message, where a question may follow a document, and the position where a
prompt leaves a known path. Between them, snapshots are as dense as is cheap: a change in the middle of a long text
then repeats little prefill. Those that turn out to be useless are evicted first. Replies get snapshots by the same
measure.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from leftoff.cache.costs import Costs
from leftoff.types import Prompt

_TRIAL = 4


@dataclass(frozen=True)
class Placement:
    """How dense snapshots are. By default they cost at most 1 % of the prefill, and stand two seconds apart at most."""

    overhead: float = 0.01
    smallest_gap: int = 64
    smallest_reply_gap: int = 32
    longest_replay_ms: float = 2000.0
    piece_tokens: int = 512  # what the scheduler reads at once
    slack: int = 16  # a position this close behind the resume point is not worth a pause of its own
    grid: int | None = None  # snapshots are taken at its multiples alone

    def gap(self, snapshot_bytes: int, costs: Costs) -> int:
        """Tokens between snapshots in a long text without better positions."""
        if costs.pieces.per_piece_ms is None and costs.pieces.mean_tokens:
            # only pieces of different sizes show what a pause costs: after small ones, try larger ones
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
        """Tokens between snapshots of a reply: clients may shorten a reply and go on from its middle.

        None with a grid: replies are not resumed from then.
        """
        if self.grid:
            return None
        cheap = costs.save_ms(snapshot_bytes) / costs.step_ms / self.overhead
        return max(self.smallest_reply_gap, int(cheap))

    def durable_positions(self, prompt: Prompt, shared: Iterable[int], positions: Sequence[int]) -> frozenset[int]:
        """The positions worth writing to disk: other prompts are known to resume there, also after a restart.

        The snapshot position before each is one too: changes in a header or a conversation are often near its end.
        """
        end = prompt.messages_end or prompt.length
        wanted = (prompt.header_end, prompt.last_user_start, end, *shared)
        durable = [self.on_grid(position) for position in wanted if position]
        before = [bisect_left(positions, position) - 1 for position in durable]
        return frozenset((*durable, *(positions[index] for index in before if index >= 0)))

    def snapshot_positions(
        self, prompt: Prompt, resume: int, shared: Iterable[int], gap: int, *, is_scarce: bool = False
    ) -> tuple[int, ...]:
        """The rising positions where a snapshot is taken: at the resume point itself, or where prefill pauses for it.

        The last one is the prompt's end.
        """
        movable = (prompt.header_end, prompt.last_user_start, *prompt.breaks, *shared)
        fixed = {prompt.messages_end, prompt.length}
        wanted = {self._snapped(position, resume) for position in movable} | fixed
        positions: list[int] = []
        last = resume
        for position in sorted(each for each in wanted if each and resume <= each):
            positions += _widening(last, position, gap) if is_scarce else self._between(prompt, last, position, gap)
            positions.append(position)
            last = position
        if self.grid:
            return tuple(sorted({each for each in map(self.on_grid, positions) if each > resume}))
        return tuple(positions)

    def on_grid(self, position: int) -> int:
        """The last position of the grid up to this one."""
        return position - position % self.grid if self.grid else position

    def _snapped(self, position: int | None, resume: int) -> int | None:
        """The resume point instead of a position closely behind it: that is not worth a pause of its own."""
        if position is None or not resume < position <= resume + self.slack:
            return position
        return resume or None

    def _between(self, prompt: Prompt, start: int, end: int, gap: int) -> list[int]:
        """Positions between two others, at least half a gap away from both; at the end of a message if one is near."""
        ends = [message.end for message in prompt.messages if start < message.end < end]
        positions = []
        while end - start >= gap + gap // 2:
            near = [position for position in ends if start + gap // 2 <= position <= start + gap]
            start = near[-1] if near else start + gap
            positions.append(start)
        return positions


def _widening(start: int, end: int, gap: int) -> list[int]:
    """Positions twice as far apart with each step back from the end: changes to a text are mostly near its end."""
    positions = []
    while end - start > gap + gap // 2:
        end -= gap
        gap *= 2
        positions.append(end)
    return positions[::-1]
