"""Tokens of one namespace, in the order in which they were read or written, and where the last few occurred before.

    log      [ prompt of one request ][ its reply ][ new part of the next prompt ][ …      a segment for each
    tables   hash of the last 8 tokens, and of the last 3  ->  the latest place in the log that follows them

A hash may be that of other tokens: what is found is compared token by token.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from leftoff.types import Tokens

ORDERS = (3, 8)  # tokens that are hashed together
LONGEST_MATCH = 64
_FIRST_TOKENS = 1 << 12
_FACTOR, _WORD = 0x9E3779B1, 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Segment:
    """Where a piece of a sequence begins in the log and in that sequence, and what the sequence begins with."""

    start: int
    position: int
    family: int


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A place in the log that follows the last `length` tokens."""

    at: int
    length: int


class TokenLog:
    """Bounded: of too many tokens, the older half is forgotten."""

    def __init__(self, most_tokens: int) -> None:
        self._most_tokens = most_tokens
        self._tokens = np.empty(min(_FIRST_TOKENS, most_tokens), np.int32)
        self._size = 0
        self._segments: list[Segment] = []
        self._starts: list[int] = []  # of the segments
        self._index_all()

    @property
    def nbytes(self) -> int:
        return self._tokens.nbytes + sum(table.nbytes for table in self._tables)

    def add(self, tokens: Tokens, position: int, family: int) -> None:
        """Adds a piece of a sequence, which begins at `position` in it."""
        num_left_out = max(0, tokens.size - self._most_tokens // 2)
        tokens, position = tokens[num_left_out:], position + num_left_out
        if tokens.size < 2:
            return
        if self._size + tokens.size > self._most_tokens:
            self._forget_older_half()
        is_larger = self._size + tokens.size > self._tokens.size
        if is_larger:
            room = min(self._most_tokens, 2 * (self._size + tokens.size))
            self._tokens = np.concatenate([self._tokens[: self._size], np.empty(room - self._size, np.int32)])
        self._segments.append(Segment(self._size, position, family))
        self._starts.append(self._size)
        self._tokens[self._size : self._size + tokens.size] = tokens
        self._size += tokens.size
        if is_larger:
            self._index_all()
        else:
            self._index(self._size - tokens.size, self._size)

    def find(self, recent: Sequence[int]) -> Occurrence | None:
        """The place that follows the longest match of the last tokens, of two that were found by hash.

        Nearly always there is none, and the first look tells.
        """
        best: Occurrence | None = None
        for order, table in zip(ORDERS, self._tables, strict=True):
            at = int(table[_hash(recent[-order:]) & (table.size - 1)]) if len(recent) >= order else 0
            if not at:
                return best
            if best is None or at != best.at:
                length = self._common(at, recent)
                if length >= ORDERS[0] and (best is None or length > best.length):
                    best = Occurrence(at, length)
        return best

    def following(self, at: int, most: int) -> list[int]:
        """The tokens from there on, up to the end of their segment."""
        following: list[int] = self._tokens[at : min(at + most, self._end(at))].tolist()
        return following

    def segment(self, at: int) -> Segment:
        return self._segments[bisect_right(self._starts, at) - 1]

    def _end(self, at: int) -> int:
        index = bisect_right(self._starts, at)
        return self._starts[index] if index < len(self._starts) else self._size

    def _common(self, at: int, recent: Sequence[int]) -> int:
        """How many tokens before `at`, in its segment, are those of `recent`."""
        if self._tokens[at - 1] != recent[-1]:  # another hash, nearly always
            return 0
        before: list[int] = self._tokens[max(self.segment(at).start, at - LONGEST_MATCH) : at].tolist()
        length = 0
        for one, other in zip(reversed(before), reversed(recent), strict=False):
            if one != other:
                break
            length += 1
        return length

    def _index_all(self) -> None:
        """Makes the tables, which have at least twice as many places as the log has tokens."""
        places = 2 << (self._tokens.size - 1).bit_length()
        self._tables = [np.zeros(places, np.int32) for _ in ORDERS]
        for start in self._starts:
            self._index(start, self._end(start))

    def _index(self, start: int, end: int) -> None:
        """Notes what follows each few tokens of a segment. Of equal ones, the later are noted last, and stay."""
        for order, table in zip(ORDERS, self._tables, strict=True):
            if end - start > order:
                places = np.arange(start + order, end, dtype=np.int32)
                table[_hashes(self._tokens[start : end - 1], order) & np.uint32(table.size - 1)] = places

    def _forget_older_half(self) -> None:
        first = self._end(self._size // 2)
        self._tokens[: self._size - first] = self._tokens[first : self._size].copy()
        self._size -= first
        kept = (each for each in self._segments if each.start >= first)
        self._segments = [replace(each, start=each.start - first) for each in kept]
        self._starts = [each.start for each in self._segments]
        self._index_all()


def _hashes(tokens: Tokens, order: int) -> npt.NDArray[np.uint32]:
    """The hash of each `order` tokens in a row."""
    num = tokens.size - order + 1
    hashes = np.zeros(num, np.uint32)
    for first in range(order):
        hashes = (hashes + tokens[first : first + num].astype(np.uint32)) * np.uint32(_FACTOR)
    return hashes ^ (hashes >> np.uint32(15))


def _hash(tokens: Sequence[int]) -> int:
    value = 0
    for token in tokens:
        value = (value + token) * _FACTOR & _WORD
    return value ^ (value >> 15)
