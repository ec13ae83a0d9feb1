"""Memory with KV cells: the kinds attention, hybrid and window.

The *rest* of a sequence is what cannot be cut back: the recurrent state of a hybrid model, or the sliding window.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from leftoff.engine.binding.abi import PARTIAL_ONLY
from leftoff.engine.context import Context
from leftoff.engine.errors import EngineError, InputError, NoRoomError
from leftoff.engine.memory.arena import Raw, view_of
from leftoff.engine.memory.base import MemoryKind, Page, PagePart, Share, Snapshot, Span, WindowPage, parts_between
from leftoff.engine.memory.cells import CellMap, equal_rounds
from leftoff.engine.memory.join import Join, begin_join
from leftoff.engine.memory.layout import HEADER_BYTES, Layout
from leftoff.engine.memory.llama_memory import LlamaMemory, SnapshotSize
from leftoff.engine.memory.windows import Windows
from leftoff.picture_tokens import uncut

# Cells that follow each other and are worth a transfer of their own. To scattered ones llama.cpp copies each row of
# each layer alone, which takes a GPU a few microseconds.
_LONG_RUN = 32
# Bytes that threads join while llama.cpp books a token, or passes over a cell, for one group more.
_JOINED_PER_TOKEN, _JOINED_PER_CELL = 6400, 1150


class PagedMemory(LlamaMemory):
    """Cuts and shares KV cells by position, and loads the rest from a snapshot. For their order see `cells`."""

    def __init__(
        self,
        context: Context,
        kind: MemoryKind,
        fingerprint: str,
        size: SnapshotSize,
        layout: Layout,
        empty_rest: Raw,
        windows: Windows | None,
        *,
        reads_beginnings: bool,
        num_sequences: int | None = None,
    ) -> None:
        """With `reads_beginnings`, llama.cpp is asked for the attention alone of a state, without the window."""
        super().__init__(context, kind, fingerprint, size, num_sequences)
        self._layout = layout
        self._empty_rest = empty_rest
        self._no_rest = empty_rest[HEADER_BYTES:] if not layout.has_rest_inside else empty_rest[:0]
        self._window = context.model.window
        self._windows = windows
        self._reads_beginnings = reads_beginnings
        self._cells = CellMap(context.num_cells, self.num_sequences)
        self._lengths = self._cells.lengths

    @property
    def free_cells(self) -> int:
        return self._cells.num_free

    @property
    def may_lose(self) -> bool:
        return self._layout.has_rest_inside

    def can_cut(self, seq: int, length: int) -> bool:
        current = self.length(seq)
        if length == 0:
            return True
        if not 0 < length <= current or uncut(self._pictures.get(seq, ()), length) != length:
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

    def save_pages(self, seq: int, spans: Sequence[Span]) -> list[Page]:
        self._check_spans(seq, spans)
        return [page for group in self._groups(spans) for page in self._save_group(seq, group)]

    def _groups(self, spans: Sequence[Span]) -> Iterator[list[Span]]:
        """Spans that follow each other, as many as are worth one transfer: each call scans all cells."""
        group: list[Span] = []
        for start, end in spans:
            follows = bool(group) and group[-1][1] == start
            if group and not (follows and self.page_bytes(end - group[0][0]) <= self._most_page_bytes):
                yield group
                group = []
            group.append((start, end))
        if group:
            yield group

    @property
    def _most_page_bytes(self) -> int:
        """Bytes of pages in one transfer: the state of a sequence without a rest has a few bytes more."""
        return self._context.staging.group_bytes - self._empty_rest.nbytes

    def _save_group(self, seq: int, spans: Sequence[Span]) -> list[Page]:
        (first, _), (_, last) = spans[0], spans[-1]
        num_tokens = last - first
        start, end = self.position(seq, first), self.position(seq, last)
        with self._context.scratch() as scratch:
            self._share_cells(seq, scratch, start, end)
            if self._reads_beginnings:
                state = self._context.stage_beginning(scratch, self.page_bytes(num_tokens))
            else:
                self._forget_rest(scratch)
                state = self._context.stage_state(scratch)
        self._layout.sort(state.view, num_tokens)  # for a build that assigns cells in another order
        staging = self._context.staging
        if len(spans) == 1:
            return [Page(first, last, staging.keep(state, self.page_bytes(num_tokens)))]
        pages = []
        for start, end in spans:
            cut_out = partial(self._layout.cut_out, state.view, num_tokens, start - first, end - first)
            pages.append(Page(start, end, staging.store(self.page_bytes(end - start), cut_out)))
        return pages

    def save_snapshot(self, seq: int, known: Sequence[WindowPage] = ()) -> Snapshot:
        if not self.kind.has_snapshots:
            raise InputError("attention memory has no snapshots: its pages are all of it")
        self._check_whole(seq)
        length = self.length(seq)
        if self._windows is not None:
            if self._is_alone(seq):  # decode on with the cells laid as for a request that loads this snapshot
                self._windows.disturb()
            return self._windows.save(seq, length, known)
        return Snapshot(length, self._context.get_state(seq, PARTIAL_ONLY))

    @property
    def max_batch_tokens(self) -> int:
        return self._windows.max_batch_tokens if self._windows is not None else self.num_cells

    def _reorder(self, num_tokens: Mapping[int, int]) -> None:
        if self._context.keeps_order and not self._cells.is_orderly:
            self._close_up(num_tokens)
        if self._windows is not None:
            if any(self._is_on_grid(seq) for seq in num_tokens):
                self._windows.disturb()
            self._windows.prepare(self._lengths, sum(num_tokens.values()))

    def extend(self, num_tokens: Mapping[int, int]) -> None:
        total = sum(num_tokens.values())
        is_split = self.kind is MemoryKind.HYBRID and total > len(num_tokens) > 1
        rounds = equal_rounds(num_tokens, self._context.micro_batch_tokens) if is_split else num_tokens.items()
        for seq, num in rounds:
            self._cells.extend(seq, num)
        if self._windows is not None:
            self._windows.extend(total)

    def clear(self) -> None:
        super().clear()
        self._cells.clear()
        if self._windows is not None:
            self._windows.clear()

    def rewind(self, seq: int) -> None:
        length = self.length(seq)
        self._forget_rest(seq)
        self._context.remove(seq, self.position(seq, length))
        self._disturb_windows()
        is_lost = self.kind is MemoryKind.WINDOW and not self._remembers(seq, length)
        if length and (self.kind is MemoryKind.HYBRID or is_lost):
            self._spoiled.add(seq)

    @property
    def can_draft(self) -> bool:
        return not (self.has_state and (self._windows is not None or self._layout.has_rest_inside))

    def _take_back(self, seq: int, length: int) -> int:
        if (held_length := self._held_length) is not None:
            self._go_back(seq, held_length, keep_rest=False)
            self._context.return_rest(seq, self.position(seq, held_length))
            return held_length
        num_tokens = self.length(seq) - length
        self._go_back(seq, length, keep_rest=True)
        if self._windows is not None:
            self._windows.cut(num_tokens)
        return length

    def _restore(
        self, seq: int, length: int, share: Share | None, pages: Sequence[PagePart], snapshot: Snapshot | None
    ) -> None:
        brings_rest = self._brings_rest(share, length)
        self._disturb_windows()
        if share is not None and share.seq == seq:
            self._go_back(seq, share.length, brings_rest)
        else:
            if self.length(seq):  # llama.cpp passes over all cells to remove nothing
                self._drop(seq)
            if share is not None and share.length:
                self._take_shared(seq, share)
        if pages:
            self._append(seq, pages)
        if snapshot is not None and not brings_rest:
            self._load_rest(seq, snapshot)  # always last: copying cells from the scratch sequence overwrites the rest

    def _load_rest(self, seq: int, snapshot: Snapshot) -> None:
        if self._windows is not None and snapshot.position:
            self._windows.load(seq, snapshot)
        else:
            self._context.load_state(seq, view_of(snapshot.data), PARTIAL_ONLY)

    def _go_back(self, seq: int, length: int, keep_rest: bool) -> None:
        if length == self.length(seq) and keep_rest:
            return
        if not keep_rest:
            self._forget_rest(seq)
        if not self._context.remove(seq, self.position(seq, length)):
            raise EngineError(f"llama.cpp would not cut sequence {seq} back to {length} tokens")
        self._cells.cut(seq, length)

    def _take_shared(self, seq: int, share: Share) -> None:
        """Shares cells with another sequence, but for those of a window: each has its own."""
        self._share_cells(share.seq, seq, 0, self.position(share.seq, share.length))
        self._cells.share(share.seq, seq, share.length)
        if self._windows is not None and self.can_cut(share.seq, share.length):
            self._windows.copy(share.seq, seq, share.length)

    def _share_cells(self, source: int, target: int, start: int, end: int) -> None:
        """Shares the cells of positions [start, end) with an empty sequence, and the rest with them.

        llama.cpp ends the process when it is to copy a part of a sequence whose rest stands between its sections.
        """
        if not self._layout.has_rest_inside:
            self._context.copy(source, target, start, end)
            return
        self._context.copy(source, target)
        if start > 0 or end < self.position(source, self.length(source)):
            self._forget_rest(target)
            self._context.remove(target, end)
            self._context.remove(target, 0, start)

    def _is_alone(self, seq: int) -> bool:
        return self.length(seq) == sum(self._lengths)

    def _disturb_windows(self) -> None:
        if self._windows is not None:
            self._windows.disturb()

    def _close_up(self, seqs: Iterable[int]) -> None:
        """Moves the ends of sequences down into the holes below them, lowest first, so that none moves twice."""
        while True:
            starts = {seq: start for seq in seqs if (start := self._cells.first_misplaced(seq)) is not None}
            if not starts:
                return
            seq = min(starts, key=lambda seq: self._cells.cell(seq, starts[seq]))
            self._move_down(seq, starts[seq])

    def _move_down(self, seq: int, start: int) -> None:
        start, length = uncut(self._pictures.get(seq, ()), start), self.length(seq)
        needed = length - start - self._cells.num_own(seq, start)
        if needed > self.free_cells:  # cells shared with other sequences stay held
            raise NoRoomError(f"no room to move sequence {seq}: {needed} cells are needed, {self.free_cells} are free")
        page = self.save_page(seq, start, length)
        rest = self.save_snapshot(seq) if self.kind.has_snapshots else None
        self._restore(seq, length, Share(seq, start), [page.whole()], rest)

    def _append(self, seq: int, parts: Sequence[PagePart]) -> None:
        """While one group is loaded, threads join the next: two of them have memory to transfer through."""
        self._check_room(sum(part.num_tokens for part in parts))
        begun: Join | None = None
        for group in (group for stretch in self._stretches(parts) for group in self._groups_to_load(stretch)):
            before, begun = begun, begin_join(self._context.staging, self._layout, group, self._no_rest)
            if before is not None:
                self._load_group(seq, before)
            del before  # lets go of its memory before the next group takes some
        if begun is not None:
            self._load_group(seq, begun)

    def _load_group(self, seq: int, join: Join) -> None:
        if self.length(seq) == 0:
            join.load(self._context, seq)
        else:
            with self._context.scratch() as scratch:
                join.load(self._context, scratch)
                self._context.copy(scratch, seq)
        self._cells.extend(seq, join.num_tokens)

    def _stretches(self, parts: Sequence[PagePart]) -> Iterator[Sequence[PagePart]]:
        """The parts for each long run of free cells, and those for the short runs between two."""
        if not (self._context.staging.is_locked and self._cells.has_holes):
            yield parts
            return
        start, end = parts[0].start, parts[-1].end
        first, was_long = start, False
        for run in self._cells.next_runs(end - start):
            is_long = run >= _LONG_RUN
            if start > first and (is_long or was_long):
                yield [*parts_between(parts, first, start)]
                first = start
            start, was_long = start + run, is_long
        yield [*parts_between(parts, first, end)]

    def _groups_to_load(self, parts: Sequence[PagePart]) -> Iterator[Sequence[PagePart]]:
        """About equal groups, or all at once: on a CPU, where nothing overlaps, and where two groups take longer."""
        total = sum(part.num_tokens for part in parts)
        num_groups, whole_bytes = self._num_groups(total), self.page_bytes(total)
        if num_groups == 1:
            yield parts
            return
        most_bytes = min(self._most_page_bytes, whole_bytes // num_groups + self.page_bytes(parts[0].num_tokens))
        first = num_tokens = 0
        for index, part in enumerate(parts):
            if num_tokens and self.page_bytes(num_tokens + part.num_tokens) > most_bytes:
                yield parts[first:index]
                first, num_tokens = index, 0
            num_tokens += part.num_tokens
        yield parts[first:]

    def _num_groups(self, num_tokens: int) -> int:
        """While one group is loaded, the next is joined; but llama.cpp's own work grows with tokens and cells."""
        staging, nbytes = self._context.staging, self.page_bytes(num_tokens)
        if not staging.is_locked:
            return 1
        if nbytes + self._empty_rest.nbytes > staging.load_bytes:
            return max(2, -(-nbytes // self._most_page_bytes))
        return 2 if nbytes > _JOINED_PER_TOKEN * num_tokens + _JOINED_PER_CELL * self.num_cells else 1

    def _drop(self, seq: int) -> None:
        if self._is_alone(seq):  # llama.cpp frees all cells at once in half the time
            self._context.clear(data=False)
            self._cells.clear()
        else:
            self._context.remove(seq)
            self._cells.cut(seq, 0)
        self._disturb_windows()

    def _remembers(self, seq: int, length: int) -> bool:
        """Whether the window still has all positions that a token at `length` attends to.

        llama.cpp does not check: it cuts back to positions that have left the window, even to none (-1).
        """
        return 0 <= self._context.first_position(seq) <= max(0, length - self._window + 1)

    def _forget_rest(self, seq: int) -> None:
        if self.kind is MemoryKind.HYBRID:
            self._context.set_state(seq, self._empty_rest, PARTIAL_ONLY)
