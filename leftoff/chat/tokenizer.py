"""Text to tokens and back: tokenises prompts at the cost of their new text, detokenises replies token by token.

Text between two control tokens is tokenised independently, so the tokens of each such segment are cached: a turn that
repeats a long history looks its segments up. Whether that holds for a vocabulary is tested once, on a text full of its
control tokens; where it does not, texts are tokenised whole.
"""

import codecs
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby, zip_longest

import numpy as np
import numpy.typing as npt

from leftoff.chat.work import checkpoint
from leftoff.engine.vocabulary import Vocabulary
from leftoff.lru import LruCache
from leftoff.types import KnownTokens, Tokens, common_length, partial_match_length

_REMEMBERED_BYTES = 64 << 20
_OVERHEAD_BYTES = 600  # of the objects around a segment
_TRIED_SEPARATORS = 64
# White space, letters, digits, marks and other scripts on both sides of a control token.
_TRIED_TEXTS = ("", "user\nHello, world", " two  spaces ", "\n\n", "Grüße 漢字 🙂", "</think>\n\n12345", " ", "\tx")


@dataclass(frozen=True, eq=False)
class Segment:
    """The tokens of a piece of text, and the byte offset at which each of them ends."""

    tokens: Tokens
    byte_ends: npt.NDArray[np.int32]

    @property
    def num_bytes(self) -> int:
        return self.tokens.nbytes + self.byte_ends.nbytes + _OVERHEAD_BYTES


@dataclass(frozen=True, eq=False)
class Tokenised:
    """The tokens of a whole text, and a map from characters to tokens."""

    text: str
    known: tuple[KnownTokens, ...]
    tokens: Tokens
    texts: Sequence[str]
    segments: Sequence[Segment]
    text_ends: Sequence[int]  # of each segment in characters, and in tokens
    token_ends: Sequence[int]
    found: dict[int, int] = field(default_factory=dict)  # positions by offset

    def positions(self, offsets: list[int]) -> list[int]:
        """For each character offset: the number of tokens that end at or before it."""
        for offset in offsets:
            if offset not in self.found:
                self.found[offset] = self._position(offset)
        return [self.found[offset] for offset in offsets]

    def _position(self, offset: int) -> int:
        index = bisect_left(self.text_ends, offset)
        if index == len(self.segments):
            return int(self.tokens.size)
        text, segment = self.texts[index], self.segments[index]
        inside = offset - self.text_ends[index] + len(text)
        first = self.token_ends[index] - int(segment.tokens.size)
        return first + int(np.searchsorted(segment.byte_ends, len(text[:inside].encode()), side="right"))

    def num_in_common(self, text: str, known: Sequence[KnownTokens], margin: int) -> int:
        """How many segments another text begins with: up to `margin` characters before they differ."""
        pairs = zip_longest(self.known, known)
        differing = next((pair for pair in pairs if pair[0] != pair[1]), ())
        ends = [common_length(self.text, text) - margin, *(part.start for part in differing if part is not None)]
        return bisect_right(self.text_ends, min(ends))


NOTHING = Tokenised("", (), np.empty(0, np.int32), (), (), (), ())


class SegmentTokenizer:
    """Tokenises with an LRU cache of segments. Thread-safe."""

    def __init__(
        self, vocabulary: Vocabulary, *, template: str = "", remembered_bytes: int = _REMEMBERED_BYTES
    ) -> None:
        self._vocabulary = vocabulary
        self._segments: LruCache[str, Segment] = LruCache(max_bytes=remembered_bytes, size_of=_size)
        self.num_calls = 0  # of the vocabulary's tokenizer, and the characters it was given
        self.num_characters = 0
        names = _separator_names(vocabulary)
        self._separator = re.compile(_any_of(names)) if names else None
        self._longest_separator = max(map(len, names), default=0)
        if not _composes(vocabulary, self._split, sorted(names, key=lambda name: name not in template)):
            self._separator = None

    @property
    def num_bytes(self) -> int:
        """Bytes of the remembered segments."""
        return self._segments.num_bytes

    def forget(self) -> None:
        """Drops all that is remembered."""
        self._segments.remove_if(lambda _: True)

    @property
    def is_segmented(self) -> bool:
        return self._separator is not None

    def tokenise(self, text: str, known: Sequence[KnownTokens] = (), last: Tokenised = NOTHING) -> Tokenised:
        """The tokens of a text; those of parts of it may be known, in rising order. Such a part begins a segment.

        The segments that the text has in common with the last turn's are taken from there.
        """
        reused = last if self.is_segmented else NOTHING
        num_reused = reused.num_in_common(text, known, self._longest_separator)
        end = first = reused.text_ends[num_reused - 1] if num_reused else 0
        num_tokens = reused.token_ends[num_reused - 1] if num_reused else 0
        texts: list[str] = []
        given: dict[int, tuple[int, ...]] = {}  # the known tokens, by the index of their text
        for part in known if self.is_segmented else filter(_is_picture, known):
            if part.start >= first:
                texts += self._split(text[end : part.start])
                given[len(texts)] = part.tokens
                texts.append(text[part.start : part.end])
                end = part.end
        texts += self._split(text[end:])
        segments = self._all_segments(texts, given)
        return Tokenised(
            text,
            tuple(known),
            np.concatenate([reused.tokens[:num_tokens], *(segment.tokens for segment in segments)]),
            [*reused.texts[:num_reused], *texts],
            [*reused.segments[:num_reused], *segments],
            [*reused.text_ends[:num_reused], *_ends(first, map(len, texts))],
            [*reused.token_ends[:num_reused], *_ends(num_tokens, (len(segment.tokens) for segment in segments))],
            {offset: position for offset, position in reused.found.items() if offset <= first and num_reused},
        )

    def _all_segments(self, texts: Sequence[str], given: Mapping[int, tuple[int, ...]]) -> tuple[Segment, ...]:
        remembered = iter(self._segments.get_many(text for index, text in enumerate(texts) if index not in given))
        return tuple(
            self._given_segment(text, given[index]) if index in given else next(remembered) or self._segment(text)
            for index, text in enumerate(texts)
        )

    def _given_segment(self, text: str, tokens: tuple[int, ...]) -> Segment:
        """Tokens may have bytes that the text does not show: control tokens, and what is no UTF-8.

        Those of a picture have none: all end where its marker does.
        """
        if any(token < 0 for token in tokens):
            return Segment(np.array(tokens, np.int32), np.full(len(tokens), len(text.encode()), np.int32))
        ends = np.minimum(self._vocabulary.byte_ends(tokens), len(text.encode()))
        return Segment(np.array(tokens, np.int32), ends.astype(np.int32))

    def _split(self, text: str) -> Iterator[str]:
        """The control tokens of a text and the segments between them, in order."""
        start = 0
        for match in self._separator.finditer(text) if self._separator is not None else ():
            if start < match.start():
                yield text[start : match.start()]
            yield match.group()
            start = match.end()
        if start < len(text):
            yield text[start:]

    def _segment(self, text: str) -> Segment:
        segment = self._segments.get(text)
        if segment is None:
            checkpoint()
            segment = self._tokenise_segment(text)
            self._segments.put(text, segment)
        return segment

    def _tokenise_segment(self, text: str) -> Segment:
        self.num_calls += 1
        self.num_characters += len(text)
        data = text.encode()
        tokens = self._vocabulary.tokenize(data)
        ends = self._vocabulary.byte_ends(tokens.tolist())
        # SentencePiece puts a space of its own before the text.
        extra = int(ends[-1]) - len(data) if ends.size else 0
        return Segment(tokens, np.maximum(ends - extra, 0).astype(np.int32))


def _is_picture(part: KnownTokens) -> bool:
    return any(token < 0 for token in part.tokens)


def _ends(start: int, lengths: Iterable[int]) -> list[int]:
    """The end of each of several things that lie one behind the other."""
    return [*accumulate(lengths, initial=start)][1:]


def _size(text: str, segment: Segment) -> int:
    return 4 * len(text) + segment.num_bytes


def _separator_names(vocabulary: Vocabulary) -> list[str]:
    names = set(map(vocabulary.token_text, vocabulary.separators))
    return sorted(filter(None, names), key=lambda name: (-len(name), name))


def _any_of(names: Iterable[str]) -> str:
    """A pattern that matches the longest of the names at a position, as llama.cpp does.

    Names with the same first letter share a branch. In a flat list of thousands of names, every "<" of a text would be
    compared with each of them.
    """
    branches = [
        re.escape(letter) + _any_of(name[1:] for name in group) if letter else ""
        for letter, group in groupby(sorted(names, reverse=True), key=lambda name: name[:1])
    ]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


def _composes(vocabulary: Vocabulary, split: Callable[[str], Iterable[str]], names: list[str]) -> bool:
    """Whether tokenising the parts gives the tokens of the whole, around each of these control tokens."""
    tried = names[:_TRIED_SEPARATORS]
    text = "".join(
        before + name + after + name + tried[index - 1]
        for index, name in enumerate(tried)
        for before, after in zip(_TRIED_TEXTS, reversed(_TRIED_TEXTS), strict=True)
    )
    parts = [*split(text)]
    tokens = {part: vocabulary.tokenize(part) for part in {*parts}}  # most of them come several times
    return not parts or np.array_equal(np.concatenate([tokens[part] for part in parts]), vocabulary.tokenize(text))


class TextStream:
    """The text of one reply, up to a stop string. Characters and stop strings may span several tokens."""

    def __init__(
        self, vocabulary: Vocabulary, stops: tuple[str, ...] = (), *, shown: frozenset[int] = frozenset()
    ) -> None:
        """Control tokens become text if they are in `shown`."""
        self._vocabulary = vocabulary
        self._hidden = vocabulary.control_tokens - shown
        self._stops = tuple(stop for stop in stops if stop)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.stop: str | None = None

    @property
    def is_stopped(self) -> bool:
        return self.stop is not None

    def push(self, token: int) -> str:
        """The text that is final now. What may be the beginning of a stop string is held back."""
        if token in self._hidden:
            return ""
        return self._release(self._decoder.decode(self._vocabulary.piece(token)))

    def close(self) -> str:
        """The text that was held back, at the end of the reply."""
        if self.is_stopped:
            return ""
        rest = self._release(self._decoder.decode(b"", final=True))
        held, self._held = self._held, ""
        return rest if self.is_stopped else rest + held

    def _release(self, text: str) -> str:
        if not self._stops:
            return text
        if self.is_stopped:
            return ""
        text = self._held + text
        found = [(position, stop) for stop in self._stops if (position := text.find(stop)) >= 0]
        if found:
            # The one that is complete first, as if the characters had come one by one.
            position, self.stop = min(found, key=lambda item: (item[0] + len(item[1]), item[0]))
            self._held = ""
            return text[:position]
        held = max(partial_match_length(text, stop) for stop in self._stops)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]
