"""Chooses the positions of a prompt where snapshots are taken.

A snapshot costs a copy, a pause of the prefill, and bytes; it saves prefill when a later prompt resumes there. Some
positions are known to be shared or resumed from:

    [ header )[ ··· )[ user )[ assistant )[ last user )[ generation prompt )
             ^                            ^           ^                    ^
             every conversation           an edit     the next turn, if    regenerate
                                                      the reply changes

so are blank lines near the end of a long message, where a question may follow a document, and the position where a
prompt leaves a known path. Between them, snapshots are as dense as is cheap, and dense enough that after a change less
time is spent on the text before it than a person would mind: closer near the end, where most changes are. However heavy
snapshots are, some stand before the end, each twice as far from the next as that is from the one after it:

    ·········)············)············)······)···)·)     end

Those that turn out to be useless are evicted first. Replies get snapshots by the same measure.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from leftoff.cache.costs import Costs
from leftoff.picture_tokens import Pictures, uncut
from leftoff.types import Prompt


@dataclass(frozen=True)
class Gaps:
    """Tokens between snapshots in a text without better positions: in the middle of a prompt, and near its end.

    `last` is the distance of the last one from the end. Where RAM is scarce they widen with the distance from there.
    """

    wide: int
    near: int
    last: int
    is_scarce: bool = False


@dataclass(frozen=True)
class Placement:
    """How dense snapshots are.

    They may cost 1 % of the prefill; up to 3 % where two of them would otherwise be more than `longest_replay_ms` of
    prefill apart, or `near_replay_ms` near the end of the prompt. The last one is no further from the end than
    `largest_last_gap`, unless taking it takes longer than to prefill what it saves.
    """

    overhead: float = 0.01
    most_overhead: float = 0.03
    smallest_gap: int = 64
    smallest_reply_gap: int = 32
    largest_reply_gap: int = 256
    largest_last_gap: int = 256
    # In a long prompt, if no two are then more than four times as far apart: a GPU, which waits for its next batch
    # after each, loses about 12 ms at 131,072 tokens, of which the copy shows 1.
    most_snapshots: int = 16
    longest_replay_ms: float = 320.0
    near_replay_ms: float = 100.0
    scarce_replay_ms: float = 2000.0  # the same where RAM is short
    scarce_near: float = 1 / 16  # of that, before the end of the prompt
    near_tokens: int = 2048  # from the end of the prompt
    chunk_tokens: int = 512  # what is prefilled at once: a gap of more is a multiple of it
    lone_chunk_tokens: int = 2048  # the same on a machine that prefills fast
    slack: int = 16  # a position this close behind the resume point is not worth a pause of its own
    grid: int | None = None  # snapshots are taken at its multiples alone

    def gaps(
        self,
        snapshot_bytes: int,
        costs: Costs,
        num_tokens: int,
        *,
        length: int | None = None,
        token_bytes: float = 0.0,
        is_scarce: bool = False,
    ) -> Gaps:
        """The gaps for a prompt of `length` tokens, of which `num_tokens` are prefilled.

        With `token_bytes`, those of a token's pages, snapshots take no more bytes than the pages of the prompt. Where
        RAM is scarce they are only as dense as is cheap, but for a few before the end.
        """
        price_ms, rate = costs.save_ms(snapshot_bytes) + costs.cut_ms, costs.prefill_tokens_per_ms
        cheap = price_ms * rate / self.overhead
        if is_scarce:
            bounded = min(cheap, self.scarce_replay_ms * rate)
            near = self.scarce_near * bounded
            near_gap = self._even(near, near)
            return Gaps(self._even(bounded, bounded), near_gap, near_gap, is_scarce=True)
        in_time = price_ms * rate / self.most_overhead
        in_bytes = snapshot_bytes / token_bytes if token_bytes else 0.0
        replay = self.longest_replay_ms * rate
        few = min(4 * replay, (length or num_tokens) / self.most_snapshots)
        wide = self._even(min(cheap, replay), max(in_time, in_bytes, few if few >= self.lone_chunk_tokens else 0.0))
        # the snapshots near the end are paid for by all tokens: in time by those prefilled, in bytes by those kept
        least = max(in_time * self._near_share(num_tokens), in_bytes * self._near_share(length or num_tokens))
        near = self._even(min(cheap, self.near_replay_ms * rate), least)
        last = self._even(min(self.largest_last_gap, self.near_replay_ms * rate), price_ms * rate)
        return Gaps(wide, min(wide, near), min(wide, near, last))

    def _near_share(self, num_tokens: int) -> float:
        return min(1.0, self.near_tokens / max(1, num_tokens))

    def _even(self, gap: float, least: float) -> int:
        """Prompts are prefilled in chunks anyway, and kernels pad chunks of odd sizes."""
        gap = max(gap, least)
        units = (self.lone_chunk_tokens, self.chunk_tokens, self.smallest_gap)
        unit = next((each for each in units if gap >= each), self.smallest_gap)
        even = max(self.smallest_gap, int(gap) // unit * unit)
        if self.lone_chunk_tokens // 2 < even < self.lone_chunk_tokens:
            even = self.lone_chunk_tokens
        return even if even >= least else even + unit

    def reply_gap(self, snapshot_bytes: int, costs: Costs, num_replies: int = 1) -> int | None:
        """Tokens between snapshots of a reply: clients may shorten a reply and go on from its middle.

        All `num_replies` that run wait while one is taken, so that each of them takes fewer. None with a grid: replies
        are not resumed from then.
        """
        if self.grid:
            return None
        cheap = max(costs.save_ms(snapshot_bytes), costs.snapshot_ms) / costs.step_ms / self.overhead
        return num_replies * max(self.smallest_reply_gap, min(self.largest_reply_gap, int(cheap)))

    def durable_positions(self, prompt: Prompt, shared: Iterable[int], positions: Sequence[int]) -> frozenset[int]:
        """The positions worth writing to disk: other prompts are known to resume there, also after a restart.

        The two snapshot positions before each are too: changes in a header or a conversation are often near its end.
        """
        end = prompt.messages_end or prompt.length
        wanted = (prompt.header_end, prompt.moved_start, prompt.last_user_start, prompt.leaves_at, end, *shared)
        durable = [self.on_grid(position, prompt.pictures) for position in wanted if position]
        ends = [bisect_left(positions, position) for position in durable]
        return frozenset(durable).union(*(positions[max(0, end - 2) : end] for end in ends))

    def snapshot_positions(self, prompt: Prompt, resume: int, shared: Iterable[int], gaps: Gaps) -> tuple[int, ...]:
        """The rising positions where a snapshot is taken: at the resume point itself, or where prefill pauses for it.

        The last one is the prompt's end. None lies within a picture, and one behind each.
        """
        movable = (prompt.header_end, prompt.moved_start, prompt.last_user_start, *prompt.breaks, *shared)
        fixed = {prompt.messages_end, prompt.length, prompt.leaves_at}
        wanted = {self._snapped(position, resume) for position in movable} | fixed
        if not gaps.is_scarce:
            wanted |= _before_end(prompt.length, [resume, *filter(None, wanted)], gaps)
        positions: list[int] = []
        last = resume
        for position in sorted(each for each in wanted if each and resume <= each):
            if gaps.is_scarce:
                positions += _widening(last, position, gaps.near)
            else:
                positions += self._between(prompt, last, position, gaps)
            positions.append(position)
            last = position
        pictures = prompt.pictures
        if pictures:
            positions += [span.end for span in pictures if span.end > resume]
        if self.grid:
            return tuple(sorted({at for each in positions if (at := self.on_grid(each, pictures)) > resume}))
        return tuple(sorted({uncut(pictures, each) for each in positions})) if pictures else tuple(positions)

    def on_grid(self, position: int, pictures: Pictures = ()) -> int:
        """The last position of the grid up to this one: a multiple that cuts no picture, or the end of a picture."""
        if not self.grid:
            return position
        multiple = position - position % self.grid
        while (start := uncut(pictures, multiple)) < multiple:
            multiple = start - start % self.grid
        return max(multiple, max((span.end for span in pictures if span.end <= position), default=0))

    def _snapped(self, position: int | None, resume: int) -> int | None:
        """The resume point instead of a position closely behind it: that is not worth a pause of its own."""
        if position is None or not resume < position <= resume + self.slack:
            return position
        return resume or None

    def _between(self, prompt: Prompt, start: int, end: int, gaps: Gaps) -> list[int]:
        """Positions between two others, at least half a gap away from both; at the end of a message if one is near."""
        ends = [message.end for message in prompt.messages if start < message.end < end]
        positions: list[int] = []
        while True:
            before_near = (prompt.length - self.near_tokens - start) // gaps.near * gaps.near
            gap = max(gaps.near, min(gaps.wide, before_near))
            if end - start < gap + gap // 2:
                return positions
            near = [position for position in ends if start + gap // 2 <= position <= start + gap]
            start = near[-1] if near else start + gap
            positions.append(start)


def _before_end(end: int, others: Sequence[int], gaps: Gaps) -> set[int]:
    """Positions before the end of a prompt, each step back twice as far, as long as they are closer than elsewhere.

    None closer than half a step to others, nor before the first of these, which is the resume point.
    """
    found, gap = set[int](), gaps.last
    while gap < gaps.near and (end := end - gap) > others[0]:
        if all(abs(end - other) >= gap // 2 for other in others):
            found.add(end)
        gap *= 2
    return found


def _widening(start: int, end: int, gap: int) -> list[int]:
    """Positions twice as far apart with each step back from the end: changes to a text are mostly near its end."""
    positions = []
    while end - start > gap + gap // 8:
        end -= gap
        gap *= 2
        positions.append(end)
    return positions[::-1]
