"""The tokens that stand for a picture in a prompt: negative numbers, so that no vocabulary has them.

A picture is a run of as many tokens as the model reads embeddings for. Trees, pages and disks know token numbers and
nothing else, so the numbers tell all that they need of a picture: which one it is, where it begins, and how many
positions it takes, which with M-RoPE are fewer than its tokens.

    bit 31      set
    bit 30      the first token of a picture
    bit 29      takes a position of its own, as all tokens of text do
    bits 0-28   of a hash of the picture's key

    tokens      [ ··· text ··· )[ F · · · picture · · · )[ ··· text ··· )
                               ^ start                  ^ end             a run is reused whole or not at all
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from blake3 import blake3

Tokens = npt.NDArray[np.int32]

_PICTURE, _FIRST, _TAKES_POSITION = np.uint32(1 << 31), np.uint32(1 << 30), np.uint32(1 << 29)
_HASH = np.uint32((1 << 29) - 1)
_MARK, _TOKEN_BITS = 1 << 30, 24  # of text before a picture: between them is where in its chunk the picture starts
ADAPTER_MARK, MARK_BITS = _MARK, _TOKEN_BITS  # the same without such a place is a mark of `adapters.py`


@dataclass(frozen=True)
class PictureSpan:
    """The tokens [start, end) of one picture, and how many positions they take."""

    start: int
    end: int
    num_positions: int

    @property
    def num_tokens(self) -> int:
        return self.end - self.start


Pictures = Sequence[PictureSpan]


def picture_tokens(key: bytes, num_tokens: int, num_positions: int) -> Tokens:
    """The run that stands for the picture of this key."""
    numbers = np.frombuffer(blake3(key).digest(4 * num_tokens), np.uint32) & _HASH | _PICTURE
    numbers[0] |= _FIRST
    numbers[:num_positions] |= _TAKES_POSITION
    return numbers.view(np.int32)


def pictures_in(tokens: Tokens) -> tuple[PictureSpan, ...]:
    """Where pictures lie in a sequence of tokens."""
    if not tokens.size or int(tokens.min()) >= 0:
        return ()
    numbers = tokens.view(np.uint32)
    is_picture = (numbers & _PICTURE) > 0
    starts = np.flatnonzero(is_picture & ((numbers & _FIRST) > 0))
    others = np.flatnonzero(~is_picture)
    spans = []
    for index, start in enumerate(starts.tolist()):
        next_start = int(starts[index + 1]) if index + 1 < starts.size else int(tokens.size)
        after = int(np.searchsorted(others, start))
        end = min(next_start, int(others[after]) if after < others.size else int(tokens.size))
        num_positions = int(np.count_nonzero(numbers[start:end] & _TAKES_POSITION))
        spans.append(PictureSpan(start, end, num_positions))
    return tuple(spans)


def cuts_picture(tokens: Tokens, position: int) -> bool:
    """Whether what comes before a position of these tokens ends within a picture."""
    if position >= tokens.size or (token := int(tokens[position])) >= 0:
        return False
    return not token & int(_FIRST)


def whole(tokens: Tokens, position: int) -> int:
    """The position, or the end of the picture that it would cut."""
    if not cuts_picture(tokens, position):
        return position
    rest = tokens[position:]
    ends = np.flatnonzero((rest >= 0) | ((rest.view(np.uint32) & _FIRST) > 0))
    return position + int(ends[0]) if ends.size else int(tokens.size)


def marked(tokens: Tokens, pictures: Iterable[PictureSpan], grid: int) -> Tokens:
    """The tokens, with those marked that a picture keeps from being decoded in a whole chunk of the grid.

        [0 ······ 64 ·· marked ·· 100)[ picture )[150 ······ 192 ······

    Chunks of other sizes are rounded otherwise: what was computed for these tokens is right before a picture that
    starts there, and nowhere else.
    """
    tokens, last_end = tokens.copy(), 0
    for span in pictures:
        offset = span.start % grid
        tokens[max(last_end, span.start - offset) : span.start] |= _MARK | offset << _TOKEN_BITS if offset else 0
        last_end = span.end
    return tokens


def unmarked(tokens: Tokens) -> Tokens:
    """The tokens as the vocabulary has them; those of pictures, and marks of adapters, stay."""
    is_marked = tokens >= _MARK | 1 << _TOKEN_BITS
    return np.where(is_marked, tokens & ((1 << _TOKEN_BITS) - 1), tokens).astype(np.int32)


def is_text(token: int) -> bool:
    """Whether this is a token of a vocabulary."""
    return 0 <= token < _MARK


def shown_text(token: int) -> bytes:
    """How people are shown a picture in a text, by its tokens; of the marks of an adapter, nothing."""
    return b"[image]" if token < 0 and token & int(_FIRST) else b""


def uncut(pictures: Iterable[PictureSpan], position: int) -> int:
    """The position, or the start of the picture that it would cut."""
    return next((span.start for span in pictures if span.start < position < span.end), position)


def lag_at(pictures: Iterable[PictureSpan], index: int) -> int:
    """By how much the position of the token at `index` is lower than its index: pictures before it take fewer."""
    return sum(span.num_tokens - span.num_positions for span in pictures if span.end <= index)
