"""Reuse reports: how much of a prompt was reused, and why the rest was prefilled. In tokens: the cache has no text."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import numpy.typing as npt

from leftoff.types import Prompt, Tokens

SHOWN_TOKENS = 24  # on each side of a difference
# So many tokens in a row, in one message, are no coincidence: templates write fewer of their own around a message.
_FOUND_TOKENS = 12
_HASH_BASE = np.uint64(0x9E3779B97F4A7C15)
_UNREAD = "not read"  # the request was cancelled before


class Reason(Enum):
    """Why tokens were prefilled."""

    NEW = "new"  # never seen before
    EDITED = "edited"  # changed in known text, or known but behind such a change
    EVICTED = "evicted"  # known, but evicted
    NO_SNAPSHOT = "past the last snapshot"  # known, but the nearest resume point lies before
    OTHER_SALT = "other salt"  # known to the same tenant, but under another salt
    LOGPROBS = "for logprobs"  # known, but the log-probabilities of the prompt are wanted, and not kept


class Origin(Enum):
    """Where reused tokens were; of the tiers, the faster first."""

    LIVE = "live"  # in the sequence that goes on
    SHARED = "shared"  # in another sequence of the engine, or in one that was cut back
    RAM = "RAM"
    DISK = "disk"
    STORE = "store"  # that machines share
    READ_AHEAD = "read ahead"  # in the sequence that goes on, computed before anybody asked


@dataclass(frozen=True)
class Reuse:
    """Tokens [start, end) were reused from one place."""

    origin: Origin
    start: int
    end: int


@dataclass(frozen=True)
class Reread:
    """Tokens [start, end) were prefilled for one reason."""

    reason: Reason
    start: int
    end: int

    @property
    def num_tokens(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class ReuseReport:
    """[0 ····· reused ····· r)[r ·· known, but read again ·· known)[known ·· edited or new ·· prompt_tokens).

    A report is made when a prompt is admitted. `unread` is what was left of it when the request was cancelled.
    """

    prompt_tokens: int
    reused: int
    known: int
    source: str
    rereads: tuple[Reread, ...]
    before: Tokens  # what followed at `known` when it was last seen
    after: Tokens  # what follows now
    unread: int = 0
    reuses: tuple[Reuse, ...] = ()
    images: tuple[tuple[int, int], ...] = ()  # the tokens [start, end) of each picture

    @property
    def computed(self) -> int:
        return self.prompt_tokens - self.reused - self.unread

    @property
    def is_edit(self) -> bool:
        """The prompt is a known one with a change in it, not one that only begins alike."""
        return any(part.reason is Reason.EDITED for part in self.rereads)

    def read_up_to(self, position: int) -> "ReuseReport":
        """This report for a prompt that was read only up to `position`."""
        parts = [replace(part, end=min(part.end, position)) for part in self.rereads if part.start < position]
        return replace(self, rereads=tuple(parts), unread=self.prompt_tokens - max(position, self.reused))

    def count(self, start: int, end: int) -> dict[str, int]:
        """The tokens of [start, end) by where they were reused from, or by the reason why they were prefilled."""
        counts: dict[str, int] = {}
        parts = [(part.origin.value, part.start, part.end) for part in self.reuses]
        parts += [(part.reason.value, part.start, part.end) for part in self.rereads]
        for name, first, last in parts:
            if (num_tokens := min(last, end) - max(first, start)) > 0:
                counts[name] = counts.get(name, 0) + num_tokens
        if (num_left := end - start - sum(counts.values())) > 0:
            counts[_UNREAD] = num_left
        return counts

    def for_logprobs(self) -> "ReuseReport":
        """This report for a prompt that was read from its beginning for the log-probabilities of its tokens."""
        parts = (replace(part, reason=Reason.LOGPROBS) if part.start < self.known else part for part in self.rereads)
        return replace(self, rereads=tuple(parts))

    @property
    def image_lines(self) -> tuple[str, ...]:
        """For each picture: `image 2: 256 tokens, reused`."""
        lines = []
        for number, (start, end) in enumerate(self.images, 1):
            is_unread = end > self.prompt_tokens - self.unread
            found = "reused" if end <= self.reused else _UNREAD if is_unread else "computed"
            lines.append(f"image {number}: {end - start:,} tokens, {found}")
        return tuple(lines)

    def line(self) -> str:
        """The report for the log: `reused 18,432 of 18,950 from RAM · 18 past the last snapshot · 500 new`."""
        head = f"reused {self.reused:,} of {self.prompt_tokens:,}"
        if self.reused:
            head += f" from {self.source}"
        parts = [head, *(f"{part.num_tokens:,} {part.reason.value}" for part in self.rereads)]
        if self.unread:
            parts.append(f"{self.unread:,} not read")
        if self.images:
            parts.append(f"{sum(end <= self.reused for _, end in self.images)} of {len(self.images)} images reused")
        return " · ".join(parts)


@dataclass(frozen=True)
class Knowledge:
    """How far a prompt was known when it was admitted, and how the known text went on."""

    known: int
    known_elsewhere: int
    lost_until: int
    before: Tokens  # empty if the known text ends there, so that the prompt only goes on


def explain(prompt: Prompt, resume: int, source: str, reuses: tuple[Reuse, ...], knowledge: Knowledge) -> ReuseReport:
    """Gives every computed token exactly one reason."""
    known = max(knowledge.known, resume)
    again = Reason.EVICTED if knowledge.lost_until > resume else Reason.NO_SNAPSHOT
    elsewhere = max(known, knowledge.known_elsewhere)
    edited = max(elsewhere, edit_end(prompt, known, knowledge.before))
    parts = (
        Reread(again, resume, known),
        Reread(Reason.OTHER_SALT, known, elsewhere),
        Reread(Reason.EDITED, elsewhere, edited),
        Reread(Reason.NEW, edited, prompt.length),
    )
    return ReuseReport(
        prompt_tokens=prompt.length,
        reused=resume,
        known=known,
        source=source,
        rereads=tuple(part for part in parts if part.num_tokens),
        before=np.array(knowledge.before[:SHOWN_TOKENS]),
        after=np.array(prompt.tokens[known : known + SHOWN_TOKENS]),
        reuses=reuses,
        images=prompt.images,
    )


def edit_end(prompt: Prompt, known: int, before: Tokens) -> int:
    """The end of the edit by which a prompt leaves the known text, which went on with `before`; `known` if it is none.

        before:  [0 ·· known)[ old words ][ later text ]
        prompt:  [0 ·· known)[ new words ][ later text ][ new ···)
                                                       ^ here

    Two prompts that only begin alike are no edits of each other. It is an edit if later text is found again, as long as
    that makes up most of it. A reply that came back otherwise than the model wrote it is an edit up to its end, too.
    """
    if not before.size:
        return known
    messages_end = prompt.messages_end or prompt.length
    after = prompt.tokens[known:messages_end]
    found = _found_again(after, before[: 4 * after.size], [message.start - known for message in prompt.messages])
    ends = np.flatnonzero(found & (2 * np.cumsum(found) >= np.arange(1, after.size + 1)))
    later_text = known + int(ends[-1]) + 1 if ends.size else known
    replies = (message for message in prompt.messages if message.role == "assistant")
    changed_reply = next((reply.end for reply in replies if reply.start <= known < reply.end), known)
    end = max(later_text, changed_reply)
    return prompt.length if known < end == messages_end else end


def _found_again(after: Tokens, before: Tokens, borders: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Which tokens of `after` stand in a run that is in `before` too. No run crosses one of the borders."""
    marks = np.zeros(after.size + 1, np.int32)
    if min(after.size, before.size) >= _FOUND_TOKENS:
        starts = _places_of(_run_hashes(before), _run_hashes(after))
        message, last_message = (np.searchsorted(borders, at, "right") for at in (starts, starts + _FOUND_TOKENS - 1))
        starts = starts[message == last_message]
        marks[starts] += 1
        marks[starts + _FOUND_TOKENS] -= 1
    return np.cumsum(marks[:-1]) > 0


def _run_hashes(tokens: Tokens) -> npt.NDArray[np.uint64]:
    """A hash of the tokens of each run, by where it begins."""
    size, numbers = tokens.size - _FOUND_TOKENS + 1, tokens.astype(np.uint64)
    hashes = np.zeros(size, np.uint64)
    for offset in range(_FOUND_TOKENS):
        hashes *= _HASH_BASE
        hashes += numbers[offset : offset + size]
    return hashes


def _places_of(known: npt.NDArray[np.uint64], hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
    """Where hashes are that are known, in ascending order. Other replies wait: `np.isin` takes five times as long."""
    known, order = np.sort(known), np.argsort(hashes)
    sought = hashes[order]
    nearest = known[np.minimum(np.searchsorted(known, sought), known.size - 1)]
    return np.sort(order[nearest == sought])
