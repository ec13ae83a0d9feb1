"""Tokenises a prompt at the price of its new text.

Between two control tokens text is tokenised by itself, so the tokens of each such segment are remembered: a turn that
repeats a long history looks its segments up.
"""

import re
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from leftoff.core import Tokens
from leftoff.engine.vocabulary import Vocabulary

_REMEMBERED_CHARACTERS = 32 << 20


@dataclass(frozen=True, eq=False)
class Segment:
    """Tokens of a piece of text, and the byte in the text where each of them ends."""

    tokens: Tokens
    byte_ends: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Tokenised:
    """A whole text as tokens. Knows which token a character belongs to."""

    tokens: Tokens
    texts: tuple[str, ...]
    segments: tuple[Segment, ...]

    def positions(self, offsets: list[int]) -> list[int]:
        """For each character offset, rising: the number of tokens that end at or before it."""
        found: list[int] = []
        first_character = first_token = 0
        waiting = list(offsets)
        for text, segment in zip(self.texts, self.segments, strict=True):
            while waiting and waiting[0] <= first_character + len(text):
                byte = len(text[: waiting.pop(0) - first_character].encode())
                found.append(first_token + int(np.searchsorted(segment.byte_ends, byte, side="right")))
            first_character += len(text)
            first_token += int(segment.tokens.size)
        return found + [first_token] * len(waiting)


class SegmentTokenizer:
    """Remembers the segments it has seen, the most recent of them."""

    def __init__(self, vocabulary: Vocabulary, remembered_characters: int = _REMEMBERED_CHARACTERS) -> None:
        self._vocabulary = vocabulary
        self._limit = remembered_characters
        self._characters = 0
        self._segments: OrderedDict[str, Segment] = OrderedDict()
        names = sorted((vocabulary.piece(t).decode("utf-8", "replace") for t in vocabulary.separators), key=len)
        pattern = "|".join(re.escape(name) for name in reversed(names) if name)
        self._separator = re.compile(f"({pattern})") if pattern else None

    def tokenise(self, text: str) -> Tokenised:
        texts = tuple(filter(None, self._separator.split(text) if self._separator else [text]))
        segments = tuple(map(self._segment, texts))
        empty = np.empty(0, np.int32)
        return Tokenised(np.concatenate([empty, *(segment.tokens for segment in segments)]), texts, segments)

    def _segment(self, text: str) -> Segment:
        segment = self._segments.get(text)
        if segment is not None:
            self._segments.move_to_end(text)
            return segment
        tokens = self._vocabulary.tokenize(text)
        sizes = np.fromiter((len(self._vocabulary.piece(token)) for token in tokens.tolist()), np.int64, tokens.size)
        segment = self._segments[text] = Segment(tokens, sizes.cumsum())
        self._characters += len(text)
        while self._characters > self._limit:
            oldest, _ = self._segments.popitem(last=False)
            self._characters -= len(oldest)
        return segment
