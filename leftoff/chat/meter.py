"""Bounds the size of what clients send before it is tokenised or decoded.

`TokenMeter` rejects texts that cannot fit into the context. Most are short enough to be tokenised right away. For the
others, the number of characters gives a lower bound on tokens; where that is not enough, slices are tokenised until
there are clearly too many tokens. Clients shorten a conversation by the number of tokens that it is refused for: the
rest is estimated from the slices. JSON values are counted without decoding, which would hold Python's lock.
"""

import numpy as np

from leftoff.chat.work import checkpoint
from leftoff.engine.vocabulary import Vocabulary

_USUAL_CHARACTERS = 8  # per token: no more in any language, a text with fewer is simply tokenised
TYPICAL_CHARACTERS = 4  # per token, where nothing is tokenised
_MAX_TOKEN_CHARACTERS = 128  # of a token, where nothing is known
_SLICE_CHARACTERS = 1 << 16
_SLICE_BYTES = 1 << 20
_MAX_VALUES = 1 << 16  # a hundredth of a second
_COUNTED_BYTES = 1 << 12
_SEPARATORS = (b",", b"[", b"{")
# A slice may begin and end inside of a token: its count is not quite that of the whole text. Far less than this off.
_MARGIN = 2


class TooManyTokensError(Exception):
    """The text has about `num_tokens` tokens, and certainly more than the context holds."""

    def __init__(self, num_tokens: int) -> None:
        super().__init__(f"the text has about {num_tokens:,} tokens")
        self.num_tokens = num_tokens


class TokenMeter:
    """Checks texts against one vocabulary and context size. Thread-safe."""

    def __init__(
        self, vocabulary: Vocabulary, context_tokens: int, *, slice_characters: int = _SLICE_CHARACTERS
    ) -> None:
        self.context_tokens = context_tokens
        self._vocabulary = vocabulary
        # A cut changes the tokens next to it, so the slices are long where tokens may be long.
        self._slice_characters = max(slice_characters, (vocabulary.longest_text or 0) ** 2)

    @property
    def longest_text(self) -> int:
        """The most characters of one token; where the vocabulary has no bound, a generous guess."""
        return self._vocabulary.longest_text or _MAX_TOKEN_CHARACTERS

    @property
    def most_characters(self) -> int:
        """No text with more characters fits."""
        return self.longest_text * self.context_tokens

    def check(self, text: str) -> None:
        """Raises `TooManyTokensError` for a text that cannot fit. A text that passes may still be slightly too long."""
        if len(text) <= _USUAL_CHARACTERS * self.context_tokens:
            return
        longest = self._vocabulary.longest_text
        if longest is not None and len(text) > longest * self.context_tokens:
            self._check_slices(text, 0)
            raise TooManyTokensError(-(-len(text) // longest))
        self._check_slices(text, _MARGIN * self.context_tokens)

    def _check_slices(self, text: str, most: int) -> None:
        """Raises as soon as the slices have more than `most` tokens, with an estimate for the whole text."""
        num_tokens, size = 0, self._slice_characters
        for start in range(0, len(text), size):
            checkpoint()
            part = text[start : start + size]
            num_tokens += self._vocabulary.tokenize(part.strip() if self._vocabulary.strips else part).size
            if num_tokens > most:
                estimate = num_tokens * len(text) // (start + len(part))
                raise TooManyTokensError(max(self.context_tokens, estimate))


def num_characters(given: object) -> int:
    """The characters of all strings in messages or tools, however deeply nested."""
    total = 0
    waiting: list[object] = [given]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            total += sum(map(len, value))
            value = value.values()
        elif isinstance(value, str):
            total += len(value)
            continue
        elif not isinstance(value, list | tuple):
            continue
        for part in value:
            if type(part) is str:
                total += len(part)
            else:
                waiting.append(part)
    return total


def has_more_values(data: bytes, most: int, *, slice_bytes: int = _SLICE_BYTES) -> bool:
    """Whether a JSON text has more than `most` values, by its commas and opening brackets outside of strings."""
    if _num_separators(data) <= most:
        return False  # whether or not they are inside of strings
    num_values, is_inside, rest = 0, False, b""
    for start in range(0, len(data), slice_bytes):
        part = rest + data[start : start + slice_bytes]
        rest = b"\\" if _ends_escaping(part) else b""
        plain = part.removesuffix(rest).replace(rb"\\", b"").replace(rb"\"", b"")
        signs = np.frombuffer(plain, np.uint8)
        inside = (np.cumsum(signs == ord('"'), dtype=np.uint8) & 1).astype(bool) ^ is_inside
        num_values += _num_separators(signs[~inside].tobytes())
        if num_values > most:
            return True
        is_inside = bool(inside[-1]) if inside.size else is_inside
    return False


def _ends_escaping(part: bytes) -> bool:
    """Whether it ends with a backslash that escapes the next byte."""
    return (len(part) - len(part.rstrip(b"\\"))) % 2 == 1


def _num_separators(data: bytes) -> int:
    return sum(_count(data, sign) for sign in _SEPARATORS)


def _count(data: bytes, sign: bytes) -> int:
    """Much of a large body may be base64, which has none: `find` passes over that 20 times as fast as `count`."""
    num, at = 0, data.find(sign)
    while at >= 0:
        num += data.count(sign, at, at + _COUNTED_BYTES)
        at = data.find(sign, at + _COUNTED_BYTES)
    return num


def is_bearable(text: str) -> bool:
    """Whether a JSON string inside a request, such as the arguments of a call, is small enough to be decoded."""
    return len(text) <= _MAX_VALUES or not has_more_values(text.encode("utf-8", "replace"), _MAX_VALUES)
