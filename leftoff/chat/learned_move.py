"""A move that was learned: the lines in which two headers of one client differ, to be moved as by a rule.

A move belongs to one header. It takes text out only if what is left is, to the letter, what the two headers had in
common: no other header can match, whatever it says between the same lines. Comparing is linear in the lines.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from blake3 import blake3
from msgspec import Struct, msgpack

Texts = tuple[str, ...]  # of a header: one for each message, or part of one

_MAX_STRETCHES = 3  # of a move: headers that differ in more places are different headers
_MAX_CHARACTERS = 8192  # of a stretch
_MIN_REST = 3  # times the text that is moved
_MIN_BEHIND = 512  # characters of the header, tools included, that would be read again: fewer are not worth it
_MIN_DIGITS = 4  # in a first line, such as a date: without them it says who the model is
_ANCHOR_CHARACTERS = (64, 128, 256, 512)
_LIST_LINES = 16  # that stay inside a list, where others come and go
_NUM_VALUES, _FEW_VALUES, _MIN_RETURNS = 8, 4, 2
_SHOWN_CHARACTERS = 48


class Parted(NamedTuple):
    """A header without the text that changes, and that text."""

    rest: Texts
    values: Texts


class Stretch(Struct):
    """Lines of a header's text, between `before` and `after`, which stay. Empty: where the text begins or ends."""

    text: int
    before: str
    after: str
    values: list[str] = []  # hashes of what was there when conversations began, the latest last
    num_values: int = 0  # different ones
    num_returns: int = 0  # to a value that was not the latest

    def find(self, text: str) -> slice | None:
        found = text.find(self.before)
        start = found + len(self.before)
        end = text.find(self.after, start) if self.after else len(text)
        return slice(start, end) if found >= 0 and start <= end <= start + _MAX_CHARACTERS else None

    def saw(self, value: str) -> bool:
        """Takes note of the hash of what stood there; returns whether it differs from last time."""
        if self.values[-1:] == [value]:
            return False
        is_known = value in self.values
        self.num_returns += is_known
        self.num_values += not is_known
        self.values = [*(other for other in self.values if other != value), value][-_NUM_VALUES:]
        return True

    @property
    def takes_turns(self) -> bool:
        """Whether a few values come again and again, as where two agents share all of a header but one line.

        The header of each agent does not change, so there is nothing to gain by moving the line.
        """
        return self.num_values <= _FEW_VALUES and self.num_returns >= max(_MIN_RETURNS, self.num_values)

    def overlaps(self, other: "Stretch") -> bool:
        return self.text == other.text and (self.before == other.before or self.after == other.after)

    def __str__(self) -> str:
        line = (self.before or self.after).strip().splitlines()[-1 if self.before else 0]
        return f"{'after' if self.before else 'before'} {line[:_SHOWN_CHARACTERS]!r}"


class LearnedMove(Struct):
    """The stretches of one header, and a hash of the rest of it: empty if they are not to be learned again."""

    namespace: str
    stretches: Sequence[Stretch]
    rest: str = ""
    changed_at: float = 0.0

    @property
    def name(self) -> str:
        places = [(stretch.text, stretch.before, stretch.after) for stretch in self.stretches]
        return blake3(msgpack.encode((self.namespace, places, self.rest))).hexdigest()[:16]

    def __str__(self) -> str:
        return f"lines {', '.join(map(str, self.stretches))} ({self.name})"

    def part(self, texts: Texts) -> Parted | None:
        """Takes the stretches out of a header; None if it is another header."""
        parted = _part(self.stretches, texts)
        return parted if parted is not None and hash_of(*parted.rest) == self.rest else None

    def saw(self, values: Texts) -> bool:
        """Takes note of the values that a conversation begins with; returns whether any differs from last time."""
        pairs = zip(self.stretches, values, strict=True)
        news = [stretch.saw(hash_of(value)) for stretch, value in pairs if value.strip()]
        if any(news):
            self.changed_at = time.time()
        return any(news)


def hash_of(*texts: str) -> str:
    """A hash by which a text, or several in this order, are recognised."""
    return blake3(msgpack.encode(texts)).hexdigest()[:32]


def find_move(namespace: str, old: Texts, new: Texts, tool_characters: int) -> LearnedMove | None:
    """The move after which two headers are the same; None if they differ in too many places, or if it spares little."""
    stretches: list[Stretch] = []
    for index, (was, now) in enumerate(zip(old, new, strict=True)):
        found = _stretches(index, was, now) if was != now else []
        if found is None or len(stretches) + len(found) > _MAX_STRETCHES:
            return None
        stretches += found
    before, after = _part(stretches, old), _part(stretches, new)
    if not stretches or before is None or after is None or before.rest != after.rest:
        return None
    first = stretches[0]
    num_behind = sum(map(len, after.rest[first.text :])) - after.rest[first.text].find(first.before) - len(first.before)
    num_moved = max(len("".join(parted.values)) for parted in (before, after))
    if num_behind + tool_characters < _MIN_BEHIND or len("".join(after.rest)) < _MIN_REST * num_moved:
        return None
    move = LearnedMove(namespace, stretches, hash_of(*after.rest))
    for parted in (before, after):
        move.saw(parted.values)
    return move


def _part(stretches: Iterable[Stretch], texts: Texts) -> Parted | None:
    rest, values = [*texts], []
    for stretch in stretches:
        text = rest[stretch.text] if stretch.text < len(rest) else ""
        found = stretch.find(text)
        if found is None:
            return None
        values.append(text[found])
        rest[stretch.text] = text[: found.start] + text[found.stop :]
    return Parted(tuple(rest), tuple(values))


def _stretches(index: int, old: str, new: str) -> list[Stretch] | None:
    """The places where two texts differ; None where lines were only added or removed, or nothing stays around them."""
    before, now = old.splitlines(keepends=True), new.splitlines(keepends=True)
    gaps = _joined(_gaps(before, now), now)
    borders = [0, *(border for gap in gaps for border in (gap.new.start, gap.new.stop)), len(now)]
    stable = ["".join(now[start:end]) for start, end in zip(borders[::2], borders[1::2], strict=True)]
    found: list[Stretch] = []
    for gap, (above, below) in zip(gaps, pairwise(stable), strict=True):
        values = "".join(before[gap.old]), "".join(now[gap.new])
        ends = [_anchor(above, old, new, at_end=True), _anchor(below, old, new, at_end=False)]
        if not all(map(str.strip, values)) or None in ends or not any(ends):
            return None
        if index == 0 and not above and min(sum(map(str.isdigit, value)) for value in values) < _MIN_DIGITS:
            return None
        found.append(Stretch(index, ends[0] or "", ends[1] or ""))
    return found


def _anchor(stable: str, old: str, new: str, *, at_end: bool) -> str | None:
    """As much of the text next to a stretch as occurs once. Empty at the border of the text; None if nothing does."""
    if not stable:
        return ""
    sizes = (stable[-size:] if at_end else stable[:size] for size in _ANCHOR_CHARACTERS)
    return next((text for text in sizes if text.strip() and old.count(text) == 1 == new.count(text)), None)


class _Gap(NamedTuple):
    """Lines of two texts that stand in the same place and differ."""

    old: slice
    new: slice

    @property
    def is_one_sided(self) -> bool:
        return self.old.start == self.old.stop or bool(self.new.start == self.new.stop)


def _gaps(old: Sequence[str], new: Sequence[str]) -> Iterator[_Gap]:
    """The places where two lists of lines differ: each ends at the next line that occurs once in both lists."""
    once_old, once_new = _once(old), _once(new)
    at, to = 0, 0
    while True:
        while at < len(old) and to < len(new) and old[at] == new[to]:
            at, to = at + 1, to + 1
        if at == len(old) and to == len(new):
            return
        in_both = (index for index in range(at, len(old)) if old[index] in once_old)
        end = next((index for index in in_both if once_new.get(old[index], -1) >= to), len(old))
        stop = once_new[old[end]] if end < len(old) else len(new)
        while end > at and stop > to and old[end - 1] == new[stop - 1]:
            end, stop = end - 1, stop - 1
        yield _Gap(slice(at, end), slice(to, stop))
        at, to = end, stop


def _once(lines: Sequence[str]) -> dict[str, int]:
    counts = Counter(lines)
    return {line: index for index, line in enumerate(lines) if counts[line] == 1}


def _joined(gaps: Iterator[_Gap], new: Sequence[str]) -> list[_Gap]:
    """Joins gaps that lie in one list, such as a log that got a line at its top and lost another at its end."""
    joined: list[_Gap] = []
    for gap in gaps:
        last = joined[-1] if joined else gap
        between = new[last.new.stop : gap.new.start]
        is_list = len(between) <= _LIST_LINES and all(map(str.strip, between))
        if joined and is_list and (last.is_one_sided or gap.is_one_sided):
            joined[-1] = _Gap(slice(last.old.start, gap.old.stop), slice(last.new.start, gap.new.stop))
        elif len(joined) > _MAX_STRETCHES:
            break  # too many already
        else:
            joined.append(gap)
    return joined
