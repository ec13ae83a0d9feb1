"""What the tiers know of one prompt, as if they were one: what both have comes from RAM."""

import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from leftoff.cache.resume_point import ResumePoint, is_on_disk
from leftoff.cache.tree import Match
from leftoff.engine.memory.base import PagePart

NOTHING = Match((), 0)


@dataclass(frozen=True)
class Lookup:
    ram: Match
    disk: Match = NOTHING

    @property
    def deepest(self) -> Match:
        return max(self.ram, self.disk, key=lambda match: match.length)

    @property
    def length(self) -> int:
        return self.deepest.length

    @property
    def shared_lengths(self) -> tuple[int, ...]:
        """Where the prompt leaves a known path: positions that are proven to be shared."""
        return tuple(match.length for match in (self.ram, self.disk) if match.leaves_midway)

    def points(self) -> list[ResumePoint]:
        """The resume points, rising."""
        points = list(self.ram.points())
        if self.disk.length:
            in_ram = {point.position for point in points}
            points += [point for point in self.disk.points() if point.position not in in_ram]
            points.sort(key=lambda point: point.position)
        return points

    @cached_property
    def parts(self) -> list[PagePart]:
        """The positions that pages cover, rising, each once."""
        parts = list(_parts(self.ram))
        return _filled(parts, list(_parts(self.disk))) if self.disk.length else parts

    @cached_property
    def parts_on_disk(self) -> list[PagePart]:
        return [part for part in self.parts if is_on_disk(part.page)]

    @cached_property
    def runs(self) -> list[tuple[int, int]]:
        """The stretches that are covered without a gap, as [start, end)."""
        runs: list[tuple[int, int]] = []
        for part in self.parts:
            if runs and runs[-1][1] == part.start:
                runs[-1] = (runs[-1][0], part.end)
            else:
                runs.append((part.start, part.end))
        return runs

    def covers(self, start: int, end: int) -> bool:
        return any(first <= start and end <= last for first, last in self.runs)


def _parts(match: Match) -> Iterator[PagePart]:
    """Of a page that goes on past the match, only what lies within."""
    for stretch in match.stretches():
        yield PagePart(stretch.stored.page, stretch.start, min(stretch.end, match.length))


def _filled(parts: list[PagePart], others: list[PagePart]) -> list[PagePart]:
    """`parts`, and what `others` have of the gaps between them."""
    filled, waiting = [], deque(others)
    covered = 0
    for part in (*parts, None):
        stop = part.start if part is not None else sys.maxsize
        while waiting and waiting[0].start < stop:
            other = waiting[0]
            start, end = max(other.start, covered), min(other.end, stop)
            if start < end:
                filled.append(PagePart(other.page, start, end))
            if other.end > stop:
                break  # the rest of it may fill a later gap
            waiting.popleft()
        if part is not None:
            filled.append(part)
            covered = part.end
    return filled
