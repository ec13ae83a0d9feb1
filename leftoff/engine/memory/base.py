"""The one protocol through which the cache sees the memory of a model: `Memory`.

A sequence holds `length` tokens. Its memory has two parts, either of which may be absent:

    [0 ····························· length)   attention: one cell per token, cut and shared by position
                                      ^       the rest: one state, valid after exactly `length` tokens

A *page* is the bytes of a stretch of the first part, a *snapshot* those of the second at one position. Layers with a
sliding window have K/V of every position too, but keep only the last ones. A snapshot holds these as *window pages*,
which are as immutable as pages: snapshots close to each other share them. What mutates:
`restore`, `drop` and decoding change the sequence they name and no other. Nothing locks: an engine belongs to one
thread; only `cancel` may be called from another.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from leftoff.picture_tokens import Pictures

Span = tuple[int, int]  # positions [start, end)


class MemoryKind(Enum):
    """Kinds of memory, by what can be cut and shared in them. `probe.py` finds the kind of a model at load."""

    ATTENTION = "attention"  # cut anywhere
    HYBRID = "hybrid"  # attention cells, and a recurrent state that cannot be cut
    RECURRENT = "recurrent"  # only a state
    WINDOW = "window"  # attention cells, and a sliding window that forgets
    OPAQUE = "opaque"  # anything else: saved and loaded as a whole

    def __init__(self, name: str) -> None:
        self.has_pages = name in ("attention", "hybrid", "window")
        self.has_snapshots = name != "attention"


# What the kind of a model's memory means for its prompts, for people.
MEANINGS = {
    MemoryKind.ATTENTION: "It can be cut back to any position: pages alone bring back every shared beginning.",
    MemoryKind.HYBRID: "Its attention can be cut back, its recurrent state cannot: "
    "a prompt resumes where a snapshot was taken, and shares pages before it.",
    MemoryKind.RECURRENT: "It is one state that cannot be cut back: a prompt resumes only where a snapshot was taken. "
    "A snapshot has the same size after any number of tokens.",
    MemoryKind.WINDOW: "Its sliding window forgets what left it: "
    "a prompt resumes where a snapshot of the window was taken, and shares pages before it.",
    MemoryKind.OPAQUE: "It is saved and loaded only as a whole: "
    "a prompt resumes where a snapshot was taken, and snapshots grow with the prompt and share nothing.",
}


class Bytes(Protocol):
    """Saved bytes, in RAM or on disk. They are freed with their last reference."""

    @property
    def nbytes(self) -> int: ...


@dataclass(frozen=True, eq=False, slots=True)
class Page:
    """The attention of positions [start, end)."""

    start: int
    end: int
    data: Bytes

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    def whole(self) -> "PagePart":
        return PagePart(self, self.start, self.end)


@dataclass(frozen=True, eq=False, slots=True)
class WindowPage(Page):
    """The K/V that layers with a sliding window have at positions [start, end)."""


@dataclass(frozen=True, slots=True)
class PagePart:
    """Positions [start, end) of a page, to load only these of it."""

    page: Page
    start: int
    end: int

    @property
    def num_tokens(self) -> int:
        return self.end - self.start


def parts_between(parts: Iterable[PagePart], start: int, end: int) -> Iterator[PagePart]:
    """The parts within [start, end), cut at its ends."""
    for part in parts:
        if part.end > start and part.start < end:
            yield PagePart(part.page, max(part.start, start), min(part.end, end))


@dataclass(frozen=True, eq=False, slots=True)
class Snapshot:
    """Everything that cannot be cut back, after exactly `position` tokens.

    `window` covers, without a gap, the positions in the sliding window of the next token.
    """

    position: int
    data: Bytes
    window: tuple[WindowPage, ...] = ()

    @property
    def nbytes(self) -> int:
        """All its bytes, also of window pages that other snapshots share."""
        return self.data.nbytes + sum(page.nbytes for page in self.window)


@dataclass(frozen=True, slots=True)
class Share:
    """Share the attention cells of [0, length) of a live sequence, without copying."""

    seq: int
    length: int


class Memory(Protocol):
    """The memory of all sequences of one context."""

    @property
    def kind(self) -> MemoryKind: ...
    @property
    def fingerprint(self) -> str:
        """Names model, library and settings: bytes saved under one are loaded under no other."""
        ...

    @property
    def num_sequences(self) -> int: ...
    @property
    def num_cells(self) -> int: ...
    @property
    def free_cells(self) -> int:
        """Tokens that can still be decoded or loaded before something must be dropped."""
        ...

    @property
    def is_asleep(self) -> bool:
        """The model is not loaded: nothing can be restored or decoded, and there are no sequences."""
        ...

    def length(self, seq: int) -> int: ...
    def is_whole(self, seq: int) -> bool:
        """False if a cancelled decode has lost all but the attention of [0, length): `restore` or `drop` it."""
        ...

    @property
    def group_bytes(self) -> int:
        """About how many bytes of pages make a call worth it while a prompt is prefilled; 0 if any number does."""
        ...

    @property
    def step_bytes(self) -> int:
        """About how many bytes of pages to save at a time when nothing runs: a request that comes waits for them."""
        ...

    @property
    def is_copying(self) -> bool:
        """Whether threads still copy what was saved: the next transfer may have to wait for them."""
        ...

    @property
    def window_tokens(self) -> int:
        """How many positions before its own a snapshot needs window pages of; 0 if there is no sliding window."""
        ...

    def page_bytes(self, num_tokens: int) -> int: ...
    def snapshot_bytes(self, position: int, since: int = 0) -> int:
        """Bytes of a snapshot, but for the window pages that it shares with one at `since` on the same path."""
        ...

    def save_pages(self, seq: int, spans: Sequence[Span]) -> list[Page]: ...
    def save_snapshot(self, seq: int, known: Sequence[WindowPage] = ()) -> Snapshot:
        """`known` are the window pages of an earlier snapshot on the same path: they are shared and not read again."""
        ...

    def restore(
        self,
        seq: int,
        length: int,
        *,
        share: Share | None = None,
        pages: Sequence[PagePart] = (),
        snapshot: Snapshot | None = None,
        pictures: Pictures = (),
    ) -> None:
        """Make `seq` stand after exactly `length` tokens. The one way to load.

        [0 ···· shared ···· s)[s ···· pages ···· length) and the snapshot at `length`. The shared part may come from
        `seq` itself: going back in place. A sequence shared at its full length brings its state along and needs no
        snapshot. None of the `pictures` in its tokens may be cut. On any failure `seq` is left empty, never
        half-restored.
        """
        ...

    def can_cut(self, seq: int, length: int) -> bool: ...
    def drop(self, seq: int) -> None: ...
    def clear(self) -> None:
        """Drop every sequence at once. The next one starts at the first cell, as in a new engine."""
        ...


def token_bytes(memory: Memory) -> int | None:
    """Bytes that a token adds to pages; None if there are none. It is an average: several tokens may share a row."""
    if not memory.kind.has_pages:
        return None
    return (memory.page_bytes(2 << 10) - memory.page_bytes(1 << 10)) >> 10
