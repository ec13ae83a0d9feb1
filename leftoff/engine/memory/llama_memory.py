"""The base class of all implementations of `base.Memory`, with the checks that keep a wrong state from being loaded.

*Paged* memory (`paged.py`: attention, hybrid, window) has KV cells that are cut and shared by position, and perhaps a
rest that is not. *Whole* memory (`whole.py`: recurrent, opaque) is saved and loaded as one state. *Compressed* memory
(`compressed.py`: DeepSeek-V4) has rows of several tokens each, and a rest.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from leftoff.engine.context import Context
from leftoff.engine.errors import BlobError, InputError, NoRoomError
from leftoff.engine.memory.base import MemoryKind, Page, PagePart, Share, Snapshot, Span, WindowPage
from leftoff.picture_tokens import Pictures, PictureSpan, lag_at, pictures_in, uncut
from leftoff.types import Tokens

_STEPS_OF_A_GROUP = 4


@dataclass(frozen=True)
class SnapshotSize:
    """Bytes of a snapshot by position: a fixed part, and one per token, of the last `window_tokens` if that is set."""

    fixed_bytes: int
    bytes_per_token: float
    window_tokens: int

    def at(self, position: int, since: int = 0) -> int:
        num_tokens = min(position - since, self.window_tokens) if self.window_tokens else position
        return round(self.fixed_bytes + self.bytes_per_token * num_tokens)


class LlamaMemory(ABC):
    """Memory of all sequences of a context. `_spoiled` are sequences whose rest was lost by a cancelled decode."""

    def __init__(
        self,
        context: Context,
        kind: MemoryKind,
        fingerprint: str,
        size: SnapshotSize,
        num_sequences: int | None = None,
    ) -> None:
        """Without `num_sequences` it has as many as the context."""
        self.kind = kind
        self.fingerprint = fingerprint
        self.num_cells = context.num_cells
        self.num_sequences = num_sequences or context.settings.num_sequences
        self._context = context
        self._snapshot_size = size
        self._lengths = [0] * self.num_sequences
        self._spoiled: set[int] = set()
        self._pictures: dict[int, tuple[PictureSpan, ...]] = {}  # of the sequences that have some
        self.replaced: set[int] = set()  # sequences that were restored or dropped since an MTP context last looked
        self._held_length: int | None = None  # of the sequence with a draft in the batch, before that

    # --- what a sequence holds

    @property
    @abstractmethod
    def free_cells(self) -> int: ...

    @property
    def max_batch_tokens(self) -> int:
        """Most tokens that one batch may have."""
        return self.num_cells

    def length(self, seq: int) -> int:
        self._check_sequence(seq)
        return self._lengths[seq]

    def position(self, seq: int, length: int) -> int:
        """Where llama.cpp has the token after `length` others: pictures may take fewer positions than tokens."""
        return length - lag_at(self._pictures[seq], length) if seq in self._pictures else length

    def has_pictures(self, seq: int) -> bool:
        return seq in self._pictures

    def add_pictures(self, read: Iterable[tuple[int, Tokens]]) -> None:
        """The last tokens of these sequences stand for a picture each."""
        for seq, tokens in read:
            start = self.length(seq) - int(tokens.size)
            (span,) = pictures_in(tokens)
            added = PictureSpan(start, start + span.end, span.num_positions)
            self._pictures[seq] = (*self._pictures.get(seq, ()), added)

    def _keep_pictures(self, seq: int, pictures: Pictures, length: int) -> None:
        """The sequence has the first `length` tokens of one with these pictures."""
        kept = tuple(span for span in pictures if span.end <= length)
        if kept:
            self._pictures[seq] = kept
        else:
            self._pictures.pop(seq, None)

    def is_whole(self, seq: int) -> bool:
        self._check_sequence(seq)
        return seq not in self._spoiled

    @abstractmethod
    def can_cut(self, seq: int, length: int) -> bool: ...

    @property
    def group_bytes(self) -> int:
        staging = self._context.staging
        return staging.group_bytes if staging.is_locked else 0

    @property
    def step_bytes(self) -> int:
        return self.group_bytes // _STEPS_OF_A_GROUP

    @property
    def is_copying(self) -> bool:
        return self._context.staging.is_lent

    @property
    def is_asleep(self) -> bool:
        return self._context.handle is None

    @abstractmethod
    def page_bytes(self, num_tokens: int) -> int: ...

    @property
    def may_lose(self) -> bool:
        """Whether llama.cpp may keep more of a sequence than it saves."""
        return self.kind is MemoryKind.OPAQUE

    @property
    def window_tokens(self) -> int:
        return self._snapshot_size.window_tokens

    def snapshot_bytes(self, position: int, since: int = 0) -> int:
        return self._snapshot_size.at(position, since) if self.kind.has_snapshots else 0

    @abstractmethod
    def save_pages(self, seq: int, spans: Sequence[Span]) -> list[Page]: ...

    def save_page(self, seq: int, start: int, end: int) -> Page:
        (page,) = self.save_pages(seq, [(start, end)])
        return page

    @abstractmethod
    def save_snapshot(self, seq: int, known: Sequence[WindowPage] = ()) -> Snapshot: ...

    # --- what changes it

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
        self._check_restore(seq, length, share, pages, snapshot)
        if uncut(pictures, length) != length:
            raise InputError(f"position {length} lies within a picture, which is restored whole or not at all")
        self.replaced.add(seq)
        try:
            self._restore(seq, length, share, pages, snapshot)
            self._keep_pictures(seq, pictures, length)
        except BaseException:  # also where memory runs out: nobody knows what it holds now
            self.drop(seq)
            raise
        self._spoiled.discard(seq)

    def drop(self, seq: int) -> None:
        self._check_sequence(seq)
        self.replaced.add(seq)
        self._drop(seq)
        self._spoiled.discard(seq)
        self._pictures.pop(seq, None)

    def clear(self) -> None:
        self._context.clear(data=False)
        self.replaced.update(range(self.num_sequences))
        self._spoiled.clear()
        self._pictures.clear()
        self._lengths[:] = [0] * self.num_sequences

    def prepare(self, num_tokens: Mapping[int, int]) -> list[int]:
        """Before a decode of so many tokens by sequence: returns the position where the tokens of each begin.

        Raises if one of them is not whole, or all together do not fit.
        """
        starts = []
        for seq in num_tokens:
            self._check_whole(seq)
            length = self._lengths[seq]
            starts.append(self.position(seq, length) if self._pictures else length)
        self._check_room(sum(num_tokens.values()))
        self._reorder(num_tokens)
        return starts

    @abstractmethod
    def extend(self, num_tokens: Mapping[int, int]) -> None:
        """After a decode: counts the tokens by which each sequence has grown, in the order of the batch."""

    @abstractmethod
    def rewind(self, seq: int) -> None:
        """After a cancelled decode: cuts the sequence back to its length before it, as far as that is possible."""

    # --- drafts: tokens that are decoded before it is known whether they come

    @property
    @abstractmethod
    def can_draft(self) -> bool:
        """Whether the last tokens of a batch can be taken back."""

    def hold(self, seq: int) -> None:
        """Before a decode with a draft: keeps what cannot be cut back as it is now, until `settle` or `release`."""
        self._check_whole(seq)
        if self.has_state:
            self._held_length = self.length(seq)
            self._context.hold_rest(seq, self.position(seq, self._held_length))

    def settle(self, seq: int, length: int) -> int:
        """After that decode: takes back the tokens from `length` on. Returns the length that the sequence now has.

        Where there is a state, that is the length before the decode, if anything is taken back.
        """
        if length < self.length(seq):
            length = self._take_back(seq, length)
        self.release()
        return length

    def release(self) -> None:
        """Forgets what is held."""
        if self._held_length is not None:
            self._held_length = None
            self._context.release_rest()

    @property
    def has_state(self) -> bool:
        """A recurrent state, alone or beside attention."""
        return self.kind in (MemoryKind.HYBRID, MemoryKind.RECURRENT)

    @abstractmethod
    def _take_back(self, seq: int, length: int) -> int: ...

    # --- the part of a change that depends on the kind

    @abstractmethod
    def _reorder(self, num_tokens: Mapping[int, int]) -> None:
        """Moves cells before a decode, so that it is bit-exact."""

    @abstractmethod
    def _restore(
        self, seq: int, length: int, share: Share | None, pages: Sequence[PagePart], snapshot: Snapshot | None
    ) -> None: ...

    @abstractmethod
    def _drop(self, seq: int) -> None: ...

    def _is_on_grid(self, seq: int) -> bool:
        """Whether other requests may resume from a snapshot taken here.

        To get the same bits as they do, a sequence that decodes on must first lay its cells as loading would.

            [0 ········ 64 ········ 128 ··· 150)      snapshots are taken at 64 and 128, never at 150 …
            [0 ········ 64 ·[100 · picture · 150)     … unless a picture ends there
        """
        grid, length = self._context.settings.grid, self.length(seq)
        if grid is None or length % grid == 0:
            return grid is not None
        return any(span.end == length for span in self._pictures.get(seq, ()))

    # --- guards

    def _check_sequence(self, seq: int) -> None:
        if not 0 <= seq < self.num_sequences:
            raise InputError(f"sequence {seq} does not exist: this engine has 0 … {self.num_sequences - 1}")

    def _check_whole(self, seq: int) -> None:
        self._check_sequence(seq)
        if seq in self._spoiled:
            raise InputError(f"sequence {seq} was cancelled halfway: restore or drop it first")

    def _check_restore(
        self, seq: int, length: int, share: Share | None, pages: Sequence[PagePart], snapshot: Snapshot | None
    ) -> None:
        """Checks that every position of [0, length) is covered once, and that the rest is that of `length`."""
        self._check_sequence(seq)
        if length < 0:
            raise InputError(f"no sequence has {length} tokens")
        covered = 0
        if share is not None:
            if not 0 <= share.length <= self.length(share.seq):
                raise InputError(f"sequence {share.seq} holds {self.length(share.seq)} tokens, not {share.length}")
            covered = share.length
        for part in pages:
            self._check_part(part, covered)
            covered = part.end
        if self.kind.has_pages and covered != length:
            raise InputError(f"positions [{covered}, {length}) are not covered by what is to be restored")
        if snapshot is not None and snapshot.position != length:
            raise InputError(f"the snapshot stands at {snapshot.position}, not at {length}")
        if snapshot is None and length > 0 and self.kind.has_snapshots and not self._brings_rest(share, length):
            raise InputError(f"{self.kind.value} memory needs a snapshot at {length}")

    def _check_spans(self, seq: int, spans: Sequence[Span]) -> None:
        for start, end in spans:
            if not 0 <= start < end <= self.length(seq):
                raise InputError(f"sequence {seq} holds {self.length(seq)} tokens: there is no page [{start}, {end})")

    def _check_part(self, part: PagePart, expected_start: int) -> None:
        page = part.page
        if part.start != expected_start or not page.start <= part.start < part.end <= page.end:
            raise InputError(f"page [{part.start}, {part.end}) does not follow on position {expected_start}")
        if page.nbytes != self.page_bytes(page.end - page.start):
            raise BlobError(f"a page of {page.end - page.start} tokens cannot have {page.nbytes} bytes here")

    def _check_room(self, num_tokens: int) -> None:
        if num_tokens > self.free_cells:
            raise NoRoomError(f"{num_tokens} tokens do not fit in the {self.free_cells} free cells of {self.num_cells}")

    def _brings_rest(self, share: Share | None, length: int) -> bool:
        """Whether the shared sequence has, or can be cut to, exactly `length` tokens: then no snapshot is needed."""
        return share is not None and share.length == length and self.can_cut(share.seq, length)
