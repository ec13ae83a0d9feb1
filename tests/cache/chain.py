"""An engine's memory whose state is a hash chain of its tokens: a restore that is wrong by anything is caught, always.

Attention cell i holds the hash of tokens [0, i], the window a hash of each of the last cells, and the rest the hash of
all tokens. All can be computed from the tokens alone, so every sequence can be held against what it ought to be.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, pairwise

import numpy as np

from leftoff.engine.errors import NoRoomError
from leftoff.engine.memory.base import MemoryKind, Page, PagePart, Share, Snapshot, Span, WindowPage
from leftoff.picture_tokens import Pictures
from leftoff.types import Tokens

BYTES_PER_TOKEN = 16
SNAPSHOT_BYTES = 400
WINDOW = 24  # positions that a window can be cut back by
WINDOW_TOKENS, WINDOW_BYTES_PER_TOKEN = 40, 3
_WINDOW_PAGE = 16


@dataclass(frozen=True)
class ChainBytes:
    nbytes: int
    content: tuple[int, ...]


@dataclass
class ChainSequence:
    tokens: list[int] = field(default_factory=list)  # what was decoded: used only to go on, never to check
    cells: list[int] = field(default_factory=list)
    window: list[int] = field(default_factory=list)  # of every position; 0 where it is lost
    rest: int = 0
    whole: bool = True


def window_of(cells: Sequence[int]) -> list[int]:
    """What windowed layers hold of the positions of these cells."""
    return [hash(("window", cell)) for cell in cells]


def chain(tokens: Sequence[int] | Tokens) -> list[int]:
    """The hash of every prefix, the empty one first."""
    return _chain(np.asarray(tokens, np.int32).tobytes())[:]


@lru_cache(maxsize=8)  # the same prompt is looked at again and again
def _chain(tokens: bytes) -> list[int]:
    return chain_on(0, np.frombuffer(tokens, np.int32).tolist())


def chain_on(present: int, tokens: Iterable[int]) -> list[int]:
    """The present hash, and those after each token more."""
    return [*accumulate(tokens, lambda before, token: hash((before, token)), initial=present)]


class ChainMemory:
    """Implements `engine.base.Memory`, and the decoding that goes with it."""

    fingerprint = "chain"
    group_bytes: int = 0
    step_bytes: int = 0
    is_copying: bool = False

    def __init__(
        self,
        kind: MemoryKind,
        num_sequences: int = 4,
        num_cells: int = 4096,
        *,
        bytes_per_token: int = BYTES_PER_TOKEN,
        fixed_snapshot_bytes: int = SNAPSHOT_BYTES,
    ) -> None:
        self.kind = kind
        self.num_sequences = num_sequences
        self.num_cells = num_cells
        self.bytes_per_token = bytes_per_token
        self.fixed_snapshot_bytes = fixed_snapshot_bytes
        self.window_tokens = WINDOW_TOKENS if kind is MemoryKind.WINDOW else 0
        self.sequences = [ChainSequence() for _ in range(num_sequences)]

    # --- decoding

    def decode(self, seq: int, tokens: Tokens) -> None:
        assert self.is_whole(seq), "decoded on a spoiled sequence"
        if tokens.size > self.free_cells:
            raise NoRoomError("full")
        sequence, new = self.sequences[seq], tokens.tolist()
        sequence.tokens += new
        # the next state depends on all of the present one, as in a model
        present = sequence.cells[-1] if sequence.cells else sequence.rest
        if self.kind.has_pages:
            cells = chain_on(present, new)[1:]
            sequence.cells += cells
            sequence.window += window_of(cells)
        sequence.rest = chain_on(present if self.kind is MemoryKind.ATTENTION else sequence.rest, new)[-1]

    def spoil(self, seq: int) -> None:
        """What a decode cancelled halfway leaves behind."""
        if self.kind in (MemoryKind.RECURRENT, MemoryKind.OPAQUE) and self.sequences[seq].tokens:
            self.drop(seq)
            self.sequences[seq].whole = False
        elif self.kind is not MemoryKind.ATTENTION and self.sequences[seq].cells:
            self.sequences[seq].rest = -1
            self.sequences[seq].whole = False

    def assert_holds(self, seq: int, tokens: Tokens) -> None:
        """The proof: cells and rest are exactly those of `tokens`."""
        hashes = chain(tokens)
        sequence = self.sequences[seq]
        assert self.length(seq) == tokens.size
        if self.kind.has_pages:
            assert sequence.cells == hashes[1:], "a cell of attention is wrong"
        if self.window_tokens:
            last = slice(-self.window_tokens, None)
            assert sequence.window[last] == window_of(hashes[1:][last]), "the window is wrong"
        if self.kind.has_snapshots:
            assert sequence.rest == hashes[-1], "the state is wrong"

    # --- base.Memory

    @property
    def free_cells(self) -> int:
        if self.kind is MemoryKind.RECURRENT:
            return self.num_cells
        if self.kind is MemoryKind.OPAQUE:
            return self.num_cells - sum(len(sequence.tokens) for sequence in self.sequences)
        # cells are told apart by what they hold: the same prefix is shared, as after a fork; dearer than that is unfair
        return self.num_cells - len({cell for sequence in self.sequences for cell in sequence.cells})

    @property
    def is_asleep(self) -> bool:
        return False

    def length(self, seq: int) -> int:
        return len(self.sequences[seq].tokens)

    def is_whole(self, seq: int) -> bool:
        return self.sequences[seq].whole

    def page_bytes(self, num_tokens: int) -> int:
        return self.bytes_per_token * num_tokens if self.kind.has_pages else 0

    def snapshot_bytes(self, position: int, since: int = 0) -> int:
        if not self.kind.has_snapshots:
            return 0
        num_shared = self.window_tokens - min(position - since, self.window_tokens)
        grown = self.bytes_per_token * position if self.kind is MemoryKind.OPAQUE else 0
        return self.fixed_snapshot_bytes + grown - WINDOW_BYTES_PER_TOKEN * num_shared

    def save_pages(self, seq: int, spans: Sequence[Span]) -> list[Page]:
        return [self._page(seq, *span) for span in spans]

    def _page(self, seq: int, start: int, end: int) -> Page:
        assert self.kind.has_pages
        assert 0 <= start < end <= self.length(seq)
        cells = tuple(self.sequences[seq].cells[start:end])
        return Page(start, end, ChainBytes(self.page_bytes(end - start), cells))

    def save_snapshot(self, seq: int, known: Sequence[WindowPage] = ()) -> Snapshot:
        assert self.kind.has_snapshots
        assert self.is_whole(seq)
        sequence = self.sequences[seq]
        length = len(sequence.tokens)
        data = ChainBytes(self.snapshot_bytes(length, since=length), (sequence.rest, *sequence.tokens))
        first = max(0, length - self.window_tokens)
        shared = [page for page in known if first < page.end < length]
        if shared and shared[0].start > first:
            shared = []
        start = shared[-1].end if shared else first
        borders = [start, *range(start - start % _WINDOW_PAGE + _WINDOW_PAGE, length, _WINDOW_PAGE), length]
        spans = pairwise(borders) if start < length else ()
        return Snapshot(length, data, (*shared, *(self._window_page(sequence, *span) for span in spans)))

    def _window_page(self, sequence: ChainSequence, start: int, end: int) -> WindowPage:
        return WindowPage(
            start, end, ChainBytes(WINDOW_BYTES_PER_TOKEN * (end - start), tuple(sequence.window[start:end]))
        )

    def restore(
        self,
        seq: int,
        length: int,
        *,
        share: Share | None = None,
        pages: Sequence[PagePart] = (),
        snapshot: Snapshot | None = None,
        pictures: Pictures = (),  # noqa: ARG002  (the tokens tell)
    ) -> None:
        brings_rest = share is not None and share.length == length and self.can_cut(share.seq, length)
        assert length == 0 or snapshot is not None or brings_rest or not self.kind.has_snapshots
        restored = self._shared(share, length) if share is not None else ChainSequence()
        for part in pages:
            assert self.kind.has_pages
            assert part.start == len(restored.cells), "a gap between pages"
            content = part.page.data.content  # type: ignore[attr-defined]
            restored.cells += content[part.start - part.page.start : part.end - part.page.start]
        restored.window = restored.window[:length] + [0] * (length - len(restored.window[:length]))
        if snapshot is not None and not brings_rest:
            assert snapshot.position == length
            restored.rest, *restored.tokens = snapshot.data.content  # type: ignore[attr-defined]
            restored.window = [0] * length
            for page in snapshot.window:
                restored.window[page.start : page.end] = page.data.content  # type: ignore[attr-defined]
        if self.kind is MemoryKind.ATTENTION:
            restored.tokens = [0] * len(restored.cells)
        assert not self.kind.has_pages or len(restored.cells) == length, "not every position is covered"
        self.sequences[seq] = ChainSequence()
        if sum(part.num_tokens for part in pages) > self.free_cells:
            raise NoRoomError("full")
        self.sequences[seq] = restored

    def can_cut(self, seq: int, length: int) -> bool:
        current = self.length(seq)
        if length in (0, current):
            return length == 0 or self.kind is MemoryKind.ATTENTION or self.is_whole(seq)
        remembered = self.kind is MemoryKind.WINDOW and self.is_whole(seq) and length >= current - WINDOW
        return 0 < length < current and (self.kind is MemoryKind.ATTENTION or remembered)

    def drop(self, seq: int) -> None:
        self.sequences[seq] = ChainSequence()

    def clear(self) -> None:
        self.sequences = [ChainSequence() for _ in range(self.num_sequences)]

    def _shared(self, share: Share, length: int) -> ChainSequence:
        source = self.sequences[share.seq]
        assert share.length <= len(source.tokens)
        shared = ChainSequence(source.tokens[: share.length], source.cells[: share.length])
        shared.window = window_of(shared.cells) if self.can_cut(share.seq, share.length) else []
        if share.length == length and self.can_cut(share.seq, length):
            cut_back = length < len(source.tokens)
            shared.rest = chain(shared.tokens)[-1] if cut_back and self.kind.has_snapshots else source.rest
        return shared


class RoomyChainMemory(ChainMemory):
    """Has cells for everything, and so need not count them: for long conversations."""

    def __init__(self, kind: MemoryKind, num_sequences: int = 4, **sizes: int) -> None:
        super().__init__(kind, num_sequences, 1 << 30, **sizes)

    @property
    def free_cells(self) -> int:
        return self.num_cells


def tokens_of(*values: int) -> Tokens:
    return np.array(values, np.int32)
