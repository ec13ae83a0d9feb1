"""Looks for texts in what a model writes freely, whatever tokens they come in."""

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from leftoff.engine.vocabulary import Vocabulary
from leftoff.types import Tokens


class Watch:
    """Knows the end of the text so far. All texts watched for end exactly where a token ends.

    That takes a little care: a token that holds the end of such a text and more would leave us in the middle of the
    token. They are few and rarely wanted, and `crossing` names them.
    """

    def __init__(self, vocabulary: Vocabulary, texts: Iterable[str]) -> None:
        self._vocabulary = vocabulary
        self._texts = tuple(text.encode() for text in texts)
        self._longest = max(map(len, self._texts))
        self._tail = b""

    def push(self, token: int) -> str | None:
        """Which of the texts ends here."""
        written = self._tail + self._vocabulary.piece(token)
        self._tail = written[-self._longest :]
        found = (text for text in self._texts if written.endswith(text))
        return next((text.decode() for text in found), None)

    def crossing(self) -> Tokens:
        """The tokens that would run past the end of a text."""
        begun = max((_overlap(self._tail, text) for text in self._texts), default=0)
        return _crossing(self._vocabulary, self._texts, self._tail[len(self._tail) - begun :])


@lru_cache(256)
def _crossing(vocabulary: Vocabulary, texts: tuple[bytes, ...], begun: bytes) -> Tokens:
    shortest = min(map(len, texts)) - len(begun)
    pieces = ((token, vocabulary.piece(token)) for token in range(vocabulary.size))
    crossing = [token for token, piece in pieces if len(piece) > shortest and _runs_past(begun + piece, texts)]
    return np.array(crossing, np.int32)


def _runs_past(written: bytes, texts: tuple[bytes, ...]) -> bool:
    return any(text in written[:-1] for text in texts)


def _overlap(written: bytes, text: bytes) -> int:
    """How many bytes at the end of `written` may be the beginning of `text`."""
    longest = min(len(written), len(text) - 1)
    return next((size for size in range(longest, 0, -1) if written.endswith(text[:size])), 0)
