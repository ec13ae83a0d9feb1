"""Plain data that several layers share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, AnyStr

import numpy as np
import numpy.typing as npt

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

    @cached_property
    def length(self) -> int:
        return int(self.tokens.size)

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
