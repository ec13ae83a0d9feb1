"""Bounds the log lines that clients can cause without being served: a flood of bad requests must not fill a disk."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from time import monotonic

_BURST = 20  # lines at once
_SECONDS = 5.0  # until there is room for one more: at most 17,000 a day


@dataclass
class _Room:
    """How many lines may still be written as of `at`, and how many were left out since the last one."""

    lines: float
    at: float
    num_left_out: int = 0


class LineRate:
    """A token bucket for each source of lines. There must be few of them: each tenant, and all strangers together."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._rooms: dict[Hashable, _Room] = {}

    def take(self, source: Hashable = None) -> int | None:
        """How many lines were left out since the last one, if this one may be written; None if it is left out too."""
        now = self._clock()
        room = self._rooms.setdefault(source, _Room(_BURST, now))
        room.lines = min(_BURST, room.lines + (now - room.at) / _SECONDS)
        room.at = now
        if room.lines < 1:
            room.num_left_out += 1
            return None
        num_left_out, room.num_left_out = room.num_left_out, 0
        room.lines -= 1
        return num_left_out
