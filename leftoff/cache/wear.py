"""Bounds what is written to a medium that wears: what cannot stay is not written.

Every byte that was written to a tier is kept there now, or was evicted since:

    written  ≤  kept + evicted  ≤  largest kept + evicted

So a tier that evicts at most half of the largest number of bytes that it ever kept has written at most 1.5 times that
number. `Wear` lets no more than this half be evicted in half an hour, so that the bound holds for any half hour: for
longer, half as much again may be written with each half hour, if it replaces what rests.
Into free room anything is written, and what somebody deletes makes room: neither is an eviction.

The half is not spent in one go. The more of it is spent, the longer a resume point must have rested, compared with the
newcomer, to be evicted for it. So conversations that take turns on a disk too small for all of them soon stop evicting
each other: those that are there stay, and the others are not written. What has rested for ten minutes makes way as long
as anything of the half is left, and so do points inside a conversation that has gone on.
"""

import json

DAY_S = 86400.0
_WINDOW_S = 1800.0
_PATIENCE_S = 600.0  # when the whole half is spent
_NUM_SLICES = 24
_PART = 0.5  # of the largest number of bytes kept


class RecentBytes:
    """How many bytes something has moved in the last `window_s`, forgotten a 24th of it at a time."""

    def __init__(self, window_s: float, of_slices: dict[int, int] | None = None) -> None:
        self._slice_s = window_s / _NUM_SLICES
        self._of_slices = of_slices or {}  # bytes by the number of the slice

    @classmethod
    def parse(cls, text: str, window_s: float) -> "RecentBytes":
        """Restores one from the `text` of another; it is empty if the text is none."""
        try:
            return cls(window_s, {int(number): int(nbytes) for number, nbytes in json.loads(text).items()})
        except (ValueError, TypeError, AttributeError, OverflowError):
            return cls(window_s)

    @property
    def text(self) -> str:
        return json.dumps(self._of_slices)

    def add(self, nbytes: int, now: float) -> None:
        number = int(now // self._slice_s)
        self._of_slices[number] = self._of_slices.get(number, 0) + nbytes

    def total(self, now: float) -> int:
        """What an earlier process has moved later than `now`, since the clock was wrong, counts as if it were now."""
        latest = int(now // self._slice_s)
        of_slices = self._of_slices
        self._of_slices = {}
        for number, nbytes in of_slices.items():
            if number >= latest - _NUM_SLICES:
                kept_in = min(number, latest)
                self._of_slices[kept_in] = self._of_slices.get(kept_in, 0) + nbytes
        return sum(self._of_slices.values())


class Wear:
    """Counts the bytes that a tier has evicted in the last half hour, and tells how many more it may evict."""

    def __init__(self) -> None:
        self._evicted = RecentBytes(_WINDOW_S)

    def evicted(self, nbytes: int, now: float) -> None:
        self._evicted.add(nbytes, now)

    def left_bytes(self, most_bytes: int, now: float) -> int:
        """How many bytes may be evicted now."""
        return int(_PART * most_bytes) - self._evicted.total(now)

    def patience_s(self, most_bytes: int, now: float) -> float:
        """How much longer than the newcomer a resume point must have rested to be evicted for it."""
        left = max(0, self.left_bytes(most_bytes, now)) / max(1.0, _PART * most_bytes)
        return _PATIENCE_S * (1 - left)
