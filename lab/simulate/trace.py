"""A trace: who asked when, and which blocks of tokens the prompt was made of.

A block id stands for a fixed number of tokens *and everything before them*, so prompts share exactly the blocks that
their lists begin with. What is left over at the end of a prompt, less than a block, is in no list: it counts as new.

    [ block )[ block ) ··· [ block )[ rest )
    [0 ·················· prompt_tokens ·· )
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from leftoff.errors import LeftoffError
from leftoff.types import Tokens

Span = tuple[int, int]  # the first and the last of block ids that follow each other


class TraceError(LeftoffError, ValueError):
    """A file that is not a trace, or a line of one that makes no sense."""


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt. Its blocks are kept as spans: the lists of a million long prompts would not fit in memory."""

    session: int
    time_s: float
    prompt_tokens: int
    spans: tuple[Span, ...]
    header_blocks: int = 0  # what all conversations of one client begin with; 0 if the trace does not tell

    def blocks(self) -> Tokens:
        if len(self.spans) == 1:
            ((first, last),) = self.spans
            return np.arange(first, last + 1, dtype=np.int32)
        return np.concatenate([np.arange(first, last + 1, dtype=np.int32) for first, last in self.spans])


Session = Sequence[Request]


@dataclass(frozen=True)
class Recording:
    """What a file holds: sessions, each with times from its own beginning."""

    name: str
    block_tokens: int
    sessions: Sequence[Session] = field(repr=False)


@dataclass(frozen=True)
class Trace:
    """Requests of all sessions, in the order in which they come."""

    block_tokens: int
    requests: Sequence[Request] = field(repr=False)

    @cached_property
    def num_ids(self) -> int:
        return num_ids(self.requests)


def num_ids(requests: Iterable[Request]) -> int:
    """Block ids are below this."""
    return 1 + max(last for request in requests for _, last in request.spans)
