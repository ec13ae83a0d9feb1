"""Plain data that several layers share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, AnyStr, Protocol

import numpy as np
import numpy.typing as npt

from leftoff.adapters import NO_ADAPTERS, AdapterSet
from leftoff.picture_tokens import PictureSpan, pictures_in

Tokens = npt.NDArray[np.int32]
Logits = npt.NDArray[np.float32]

HEADER_ROLES = ("system", "developer")  # of the messages that a conversation begins with


def header_size(messages: Sequence[Mapping[str, Any]]) -> int:
    """The number of system messages that a conversation begins with."""
    others = (index for index, message in enumerate(messages) if message.get("role") not in HEADER_ROLES)
    return next(others, len(messages))


def owner_of(namespace: str) -> str:
    """The owner in a cache namespace `owner/salt`. A report may name other namespaces of the same owner only."""
    return namespace.partition("/")[0]


def partial_match_length(text: AnyStr, marker: AnyStr) -> int:
    """Length of the longest end of `text` that `marker` begins with; `marker` as a whole does not count."""
    longest = min(len(text), len(marker) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(marker[:size])), 0)


def common_length(left: AnyStr, right: AnyStr) -> int:
    """Length of the common prefix."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if left[low:middle] == right[low:middle] else (low, middle - 1)
    return low


@dataclass(frozen=True)
class ReasoningTags:
    """The texts that a model writes before and after its reasoning."""

    begin: str = "<think>"
    end: str = "</think>"

    def are_opened_by(self, prompt: str) -> bool:
        """Whether a prompt ends with the opening tag, as those of some templates do."""
        return prompt.rstrip().endswith(self.begin.rstrip())


@dataclass(frozen=True)
class KnownTokens:
    """The tokens of the characters [start, end) of a text, where they need not be those that the tokenizer makes."""

    start: int
    end: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Embeddings:
    """What a model reads of a picture instead of tokens: a row for each of the tokens that stand for it.

    With M-RoPE `positions` has a column for each token, with time, row and column as seen from the picture's first
    position, and 0. Otherwise each token takes a position, as in text.
    """

    rows: npt.NDArray[np.float32]
    positions: npt.NDArray[np.int32] | None = None
    is_causal: bool = True  # else tokens of the picture see those behind them, too

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + (self.positions.nbytes if self.positions is not None else 0)

    def part(self, start: int, end: int) -> "Embeddings":
        """The embeddings of the tokens [start, end)."""
        positions = self.positions[:, start:end] if self.positions is not None else None
        return Embeddings(self.rows[start:end], positions, self.is_causal)

    def positions_from(self, start: int) -> npt.NDArray[np.int32]:
        """As llama.cpp wants them: one for each token, or all times, then all rows, all columns, and zeros."""
        if self.positions is None:
            return np.arange(start, start + len(self.rows), dtype=np.int32)
        return self.positions + np.array([[start], [start], [start], [0]], np.int32)


class PictureSource(Protocol):
    """Where the embeddings of a picture in a prompt come from."""

    def begin(self, wake: Callable[[], None]) -> None:
        """Has the picture encoded, unless that is under way; `wake` is called when it is done, or has failed."""
        ...

    def take(self) -> Embeddings | None:
        """The embeddings, once: to have them again, `begin` again. None until they are there. Raises why not."""
        ...

    def cancel(self) -> None:
        """Gives them up: nobody wants them any more."""
        ...


@dataclass(frozen=True)
class MessageSpan:
    """The tokens [start, end) of one chat message in a prompt."""

    role: str
    start: int
    end: int


@dataclass(frozen=True, eq=False)
class Prompt:
    """The tokens that a model continues, and where its messages lie in them. A raw prompt has no messages.

    [ header: system and tools )[ user )[ assistant ) ··· [ user )[ generation prompt )
    """

    tokens: Tokens
    messages: tuple[MessageSpan, ...] = ()
    breaks: tuple[int, ...] = ()  # blank lines in a long last message: a later prompt may share the text before one
    moved_start: int | None = None  # of the texts that rules moved: all conversations of a project begin as up to there
    images: tuple[tuple[int, int], ...] = ()  # the pictures as people count them: each may be several of `pictures`
    sources: Mapping[int, PictureSource] = field(default_factory=dict)  # by where `pictures` start
    adapters: AdapterSet = NO_ADAPTERS  # with which it is read
    adapted_from: int = 0  # the first token that is
    is_only_read: bool = False  # nothing is generated from it: the logits at its end are not needed

    def adapted(self, adapters: AdapterSet) -> "Prompt":
        """This prompt, to be read with adapters; without them if its text does not invoke them."""
        if adapters is self.adapters:
            return self
        start = adapters.start_in(self.tokens)
        return replace(self, adapters=adapters if start is not None else NO_ADAPTERS, adapted_from=start or 0)

    @property
    def leaves_at(self) -> int:
        """Where its path leaves that of the same prompt without adapters; 0 if they have nothing in common."""
        return self.adapters.leaves_at(self.adapted_from, self.pictures) if self.adapted_from else 0

    @cached_property
    def length(self) -> int:
        return int(self.tokens.size)

    @cached_property
    def pictures(self) -> tuple[PictureSpan, ...]:
        return pictures_in(self.tokens)

    @cached_property
    def header_end(self) -> int | None:
        """The end of the system messages and tools, which all conversations of one client share."""
        starts = (message.start for message in self.messages if message.role not in HEADER_ROLES)
        return next(starts, None)

    @cached_property
    def last_user_start(self) -> int | None:
        starts = [message.start for message in self.messages if message.role == "user"]
        return starts[-1] if starts else None

    @cached_property
    def messages_end(self) -> int | None:
        """Where the last message ends and the generation prompt begins."""
        return self.messages[-1].end if self.messages else None
