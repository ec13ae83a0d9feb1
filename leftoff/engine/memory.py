"""The memory of all sequences of a context, by kind: saving, loading, cutting, forking. Implements `base.Memory`.

Two ways are enough for the five kinds. *Paged* memory (attention, hybrid, window) has attention cells that are cut
and shared by position, and perhaps a rest that is not. *Whole* memory (recurrent, opaque) is one lump.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from leftoff.engine.abi import PARTIAL_ONLY
from leftoff.engine.arena import Raw, view_of
from leftoff.engine.base import MemoryKind, Page, PagePart, Share, Snapshot
from leftoff.engine.cells import CellLedger
from leftoff.engine.context import Context
from leftoff.engine.errors import BlobError, EngineError, InputError, NoRoomError
from leftoff.engine.layout import HEADER_BYTES, Layout


@dataclass(frozen=True)
class SnapshotSize:
    """Bytes of a snapshot by position: a fixed part, and one that grows up to a limit (a window's length)."""

    fixed_bytes: int
    bytes_per_token: float
    limit: int

    def at(self, position: int) -> int:
        return round(self.fixed_bytes + self.bytes_per_token * min(position, self.limit))


class LlamaMemory(ABC):
    """What both ways share: the rules that make a wrong state impossible to ask for."""

    def __init__(
        self, context: Context, kind: MemoryKind, fingerprint: str, size: SnapshotSize, num_sequences: int
    ) -> None:
        self.kind = kind
        self.fingerprint = fingerprint
        self.num_cells = context.num_cells
        self.num_sequences = num_sequences
        self._context = context
        self._snapshot_size = size
        self._spoiled: set[int] = set()

    # --- what a sequence holds

    @property
    @abstractmethod
    def free_cells(self) -> int: ...

    @abstractmethod
    def length(self, seq: int) -> int: ...

    def is_whole(self, seq: int) -> bool:
        self._check_sequence(seq)
        return seq not in self._spoiled

    @abstractmethod
    def can_cut(self, seq: int, length: int) -> bool: ...

    def snapshot_bytes(self, position: int) -> int:
        return self._snapshot_size.at(position) if self.kind.has_snapshots else 0

    @abstractmethod
    def page_bytes(self, num_tokens: int) -> int: ...

    # --- what changes it

    def restore(
        self,
        seq: int,
        length: int,
        *,
        share: Share | None = None,
        pages: Sequence[PagePart] = (),
        snapshot: Snapshot | None = None,
    ) -> None:
        self._check_restore(seq, length, share, pages, snapshot)
        try:
            self._restore(seq, length, share, pages, snapshot)
        except EngineError:
            self.drop(seq)
            raise
        self._spoiled.discard(seq)

    def cut(self, seq: int, length: int) -> None:
        if not self.can_cut(seq, length):
            raise InputError(
                f"{self.kind.value} memory cannot be cut from {self.length(seq)} back to {length} tokens: "
                "restore a snapshot"
            )
        self.restore(seq, length, share=Share(seq, length))

    def fork(self, source: int, target: int, length: int) -> None:
        self.restore(target, length, share=Share(source, length))

    def park(self, seq: int, spare: int) -> None:
        self.fork(seq, spare, self.length(seq))

    def drop(self, seq: int) -> None:
        self._check_sequence(seq)
        self._drop(seq)
        self._spoiled.discard(seq)

    def extend(self, seq: int, num_tokens: int) -> None:
        """After a decode: `seq` has grown."""
        self._extend(seq, num_tokens)

    @abstractmethod
    def rewind(self, seq: int) -> None:
        """After a decode that was cancelled halfway: keep what still stands at the old length."""

    # --- what is saved

    @abstractmethod
    def save_page(self, seq: int, start: int, end: int) -> Page: ...

    @abstractmethod
    def save_snapshot(self, seq: int) -> Snapshot: ...

    # --- what the two ways do differently

    @abstractmethod
    def _restore(
        self, seq: int, length: int, share: Share | None, pages: Sequence[PagePart], snapshot: Snapshot | None
    ) -> None: ...

    @abstractmethod
    def _drop(self, seq: int) -> None: ...

    @abstractmethod
    def _extend(self, seq: int, num_tokens: int) -> None: ...

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
        """Every position is covered once, and the rest stands exactly at the end."""
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

    def _check_part(self, part: PagePart, expected_start: int) -> None:
        page = part.page
        if part.start != expected_start or not page.start <= part.start < part.end <= page.end:
            raise InputError(f"page [{part.start}, {part.end}) does not follow on position {expected_start}")
        if page.nbytes != self.page_bytes(page.end - page.start):
            raise BlobError(f"a page of {page.end - page.start} tokens cannot have {page.nbytes} bytes here")

    def _brings_rest(self, share: Share | None, length: int) -> bool:
        """The shared sequence stands, or can be cut to stand, exactly at `length`: no snapshot is needed."""
        return share is not None and share.length == length and self.can_cut(share.seq, length)


class PagedMemory(LlamaMemory):
    """Attention cells, shared and cut by position; and for hybrid and window a rest that is loaded as one."""

    def __init__(
        self,
        context: Context,
        kind: MemoryKind,
        fingerprint: str,
        size: SnapshotSize,
        num_sequences: int,
        layout: Layout,
        empty_rest: Raw,
    ) -> None:
        super().__init__(context, kind, fingerprint, size, num_sequences)
        self._layout = layout
        self._empty_rest = empty_rest
        self._window = context.model.window
        self._cells = CellLedger(context.num_cells, num_sequences)

    @property
    def free_cells(self) -> int:
        return self._cells.num_free

    def length(self, seq: int) -> int:
        self._check_sequence(seq)
        return self._cells.lengths[seq]

    def can_cut(self, seq: int, length: int) -> bool:
        current = self.length(seq)
        if length == 0:
            return True
        if not 0 < length <= current:
            return False
        if self.kind is MemoryKind.ATTENTION:
            return True
        if seq in self._spoiled:
            return False
        if length == current:
            return True
        return self.kind is MemoryKind.WINDOW and self._remembers(seq, length)

    def page_bytes(self, num_tokens: int) -> int:
        return self._layout.section_end(num_tokens)

    def save_page(self, seq: int, start: int, end: int) -> Page:
        if not 0 <= start < end <= self.length(seq):
            raise InputError(f"sequence {seq} holds {self.length(seq)} tokens: there is no page [{start}, {end})")
        with self._scratch() as scratch:
            self._context.copy(seq, scratch, start, end)
            self._forget_rest(scratch)
            state = self._context.get_state(scratch)
        num_tokens = end - start
        positions = self._layout.positions(state.view, num_tokens)
        if not np.array_equal(positions, np.arange(start, end)):
            self._layout.sort(state.view, num_tokens)
        return Page(start, end, self._context.arena.fit(state, self.page_bytes(num_tokens)))

    def save_snapshot(self, seq: int) -> Snapshot:
        if not self.kind.has_snapshots:
            raise InputError("attention memory has no snapshots: its pages are all of it")
        self._check_whole(seq)
        length = self.length(seq)
        if not self._window:
            return Snapshot(length, self._context.get_state(seq, PARTIAL_ONLY))
        with self._scratch() as scratch:
            # A window's cells name their sequence: saved by way of scratch, equal states are equal bytes.
            self._context.copy(seq, scratch, max(0, length - self._window), length)
            return Snapshot(length, self._context.get_state(scratch, PARTIAL_ONLY))

    def rewind(self, seq: int) -> None:
        length = self.length(seq)
        self._forget_rest(seq)
        self._context.remove(seq, length)
        is_lost = self.kind is MemoryKind.WINDOW and not self._remembers(seq, length)
        if length and (self.kind is MemoryKind.HYBRID or is_lost):
            self._spoiled.add(seq)

    def _restore(
        self, seq: int, length: int, share: Share | None, pages: Sequence[PagePart], snapshot: Snapshot | None
    ) -> None:
        brings_rest = self._brings_rest(share, length)
        if share is not None and share.seq == seq:
            self._go_back(seq, share.length, brings_rest)
        else:
            self._drop(seq)
            if share is not None and share.length:
                self._take_shared(seq, share, brings_rest)
        if pages:
            self._append(seq, pages)
        if snapshot is not None and not brings_rest:
            # Always last: copying cells from the scratch sequence wipes the rest.
            self._context.set_state(seq, view_of(snapshot.data), PARTIAL_ONLY)

    def _go_back(self, seq: int, length: int, keep_rest: bool) -> None:
        if length == self.length(seq) and keep_rest:
            return
        if not keep_rest:
            self._forget_rest(seq)
        if not self._context.remove(seq, length):
            raise EngineError(f"llama.cpp would not cut sequence {seq} back to {length} tokens")
        self._cells.cut(seq, length)

    def _take_shared(self, seq: int, share: Share, brings_rest: bool) -> None:
        self._context.copy(share.seq, seq, 0, share.length)
        self._cells.share(share.seq, seq, share.length)
        if brings_rest and self._window:
            # Cells of a window are reused only while one sequence holds them: give this one its own.
            self._context.set_state(seq, self._context.get_state(seq, PARTIAL_ONLY).view, PARTIAL_ONLY)

    def _append(self, seq: int, parts: Sequence[PagePart]) -> None:
        num_tokens = sum(part.num_tokens for part in parts)
        if num_tokens > self.free_cells:
            raise NoRoomError(f"{num_tokens} tokens do not fit in the {self.free_cells} free cells of {self.num_cells}")
        section = self._layout.section_end(num_tokens)
        rest = self._empty_rest[HEADER_BYTES:]
        blob = self._context.arena.take(section + rest.nbytes)
        self._layout.join(parts, blob.view)
        blob.view[section:] = rest
        if self.length(seq) == 0:
            self._context.set_state(seq, blob.view)
        else:
            with self._scratch() as scratch:
                self._context.set_state(scratch, blob.view)
                self._context.copy(scratch, seq)
        self._cells.extend(seq, num_tokens)

    def _drop(self, seq: int) -> None:
        self._context.remove(seq)
        self._cells.cut(seq, 0)

    def _extend(self, seq: int, num_tokens: int) -> None:
        self._cells.extend(seq, num_tokens)

    def _remembers(self, seq: int, length: int) -> bool:
        """Whether the window still holds all that the token at `length` would look at. llama.cpp does not ask: it lets
        a window be cut back to what it has forgotten, or to nothing (-1)."""
        return 0 <= self._context.first_position(seq) <= max(0, length - self._window)

    def _forget_rest(self, seq: int) -> None:
        if self.kind is MemoryKind.HYBRID:
            self._context.set_state(seq, self._empty_rest, PARTIAL_ONLY)

    @contextmanager
    def _scratch(self) -> Iterator[int]:
        try:
            yield self._context.scratch
        finally:
            self._context.remove(self._context.scratch)


class WholeMemory(LlamaMemory):
    """Memory in one lump: a snapshot is everything. Nothing is shared, nothing is cut."""

    def __init__(
        self, context: Context, kind: MemoryKind, fingerprint: str, size: SnapshotSize, num_sequences: int
    ) -> None:
        super().__init__(context, kind, fingerprint, size, num_sequences)
        self._lengths = [0] * num_sequences

    @property
    def free_cells(self) -> int:
        # a recurrent state has the same size after any number of tokens
        return self.num_cells if self.kind is MemoryKind.RECURRENT else self.num_cells - sum(self._lengths)

    def length(self, seq: int) -> int:
        self._check_sequence(seq)
        return self._lengths[seq]

    def can_cut(self, seq: int, length: int) -> bool:
        return length in (0, self.length(seq))

    def page_bytes(self, num_tokens: int) -> int:  # noqa: ARG002
        return 0

    def save_page(self, seq: int, start: int, end: int) -> Page:
        raise InputError(f"{self.kind.value} memory has no pages: save a snapshot (asked: [{start}, {end}) of {seq})")

    def save_snapshot(self, seq: int) -> Snapshot:
        self._check_whole(seq)
        return Snapshot(self.length(seq), self._context.get_state(seq))

    def rewind(self, seq: int) -> None:
        self.drop(seq)

    def _restore(
        self, seq: int, length: int, share: Share | None, pages: Sequence[PagePart], snapshot: Snapshot | None
    ) -> None:
        if pages:
            raise InputError(f"{self.kind.value} memory has no pages")
        if snapshot is None and share is not None and share.seq != seq and self.kind is MemoryKind.RECURRENT:
            self._drop(seq)
            self._context.copy(share.seq, seq)  # shared until one of them goes on
        elif snapshot is not None or share is None or share.seq != seq:
            state = self._state_to_load(share, snapshot)
            self._drop(seq)
            if state is not None:
                self._make_room(length)
                self._context.set_state(seq, state)
        self._lengths[seq] = length

    def _state_to_load(self, share: Share | None, snapshot: Snapshot | None) -> Raw | None:
        if snapshot is not None:
            return view_of(snapshot.data)
        if share is not None and share.length:
            return self._context.get_state(share.seq).view
        return None

    def _make_room(self, length: int) -> None:
        if length > self.free_cells:
            raise NoRoomError(f"{length} tokens do not fit in the {self.free_cells} free cells of {self.num_cells}")

    def _drop(self, seq: int) -> None:
        self._context.remove(seq)
        self._lengths[seq] = 0

    def _extend(self, seq: int, num_tokens: int) -> None:
        self._lengths[seq] += num_tokens
