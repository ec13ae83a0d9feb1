"""Memory whose past is kept in compressed rows: DeepSeek-V4, see `compressed_layout`.

llama.cpp copies no part of such a sequence, so pages are cut out of its whole state, many at a time, and a sequence is
loaded as one state that is put together from rows and a snapshot. Every sequence has a stream of cells of its own, so
that nothing is shared and others change nothing.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from leftoff.config import smallest_batch
from leftoff.engine.binding.abi import PARTIAL_ONLY
from leftoff.engine.context import Context
from leftoff.engine.errors import EngineError, InputError
from leftoff.engine.memory.arena import Raw, view_of
from leftoff.engine.memory.base import MemoryKind, Page, PagePart, Share, Snapshot, Span, WindowPage
from leftoff.engine.memory.compressed_layout import CompressedLayout, copy_rows
from leftoff.engine.memory.llama_memory import LlamaMemory, SnapshotSize


class CompressedMemory(LlamaMemory):
    """Pages are rows; a snapshot is the window and the tokens that are not yet in a row."""

    def __init__(
        self, context: Context, fingerprint: str, size: SnapshotSize, layout: CompressedLayout, window: int
    ) -> None:
        super().__init__(context, MemoryKind.HYBRID, fingerprint, size)
        self._layout = layout
        self._window = window
        self._max_batch_tokens = max(context.micro_batch_tokens, smallest_batch(context.settings.num_sequences))
        # as llama.cpp sizes the ring of a sequence, less its padding
        self._num_window_cells = window + context.micro_batch_tokens
        self._window_ends = [0] * self.num_sequences  # cells of the ring from here on are free
        self._saved: set[int] = set()  # sequences that must lie as after loading what was saved of them

    @property
    def free_cells(self) -> int:
        return self.num_cells - sum(self._lengths)

    @property
    def group_bytes(self) -> int:
        return self._context.staging.group_bytes  # every call reads the whole state

    @property
    def step_bytes(self) -> int:
        return self.group_bytes

    def can_cut(self, seq: int, length: int) -> bool:
        return length == 0 or (length == self.length(seq) and seq not in self._spoiled)

    def page_bytes(self, num_tokens: int) -> int:
        return self._layout.page_bytes(num_tokens)

    def save_pages(self, seq: int, spans: Sequence[Span]) -> list[Page]:
        self._check_spans(seq, spans)
        if not spans:
            return []
        rows = self._layout.rows(self._context.stage_state(seq).view, seq)
        pages = []
        for start, end in spans:
            cut_out = partial(self._layout.cut_out, rows, start, end)
            pages.append(Page(start, end, self._context.staging.store(self.page_bytes(end - start), cut_out)))
        return pages

    def save_snapshot(self, seq: int, known: Sequence[WindowPage] = ()) -> Snapshot:  # noqa: ARG002
        self._check_whole(seq)
        self._saved.add(seq)
        state = self._context.stage_state(seq, PARTIAL_ONLY).view
        write_rest = partial(self._layout.write_rest, state, seq)
        return Snapshot(self.length(seq), self._context.staging.store(self._layout.rest_bytes(state), write_rest))

    @property
    def max_batch_tokens(self) -> int:
        return min(self.num_cells, self._max_batch_tokens)  # a micro-batch always fits behind a window

    def _reorder(self, num_tokens: Mapping[int, int]) -> None:
        """Loads windows anew, so that their cells lie as if they had been loaded, and always in the order of positions.

        Attention sums over the cells in order. llama.cpp uses those of a window as a ring, see `windows`; here each
        sequence has a ring of its own.
        """
        for seq, num in num_tokens.items():
            would_wrap = self._window_ends[seq] + num > self._num_window_cells
            if self._lengths[seq] and (would_wrap or seq in self._saved or self._is_on_grid(seq)):
                self._load_window(seq, self._context.stage_state(seq, PARTIAL_ONLY).view, self._lengths[seq])

    def _load_window(self, seq: int, state: Raw, length: int) -> None:
        self._context.set_state(seq, state, PARTIAL_ONLY)
        self._place_window(seq, length)

    def _place_window(self, seq: int, length: int) -> None:
        """Notes that the window of a sequence has just been loaded: it begins at the first cell of its ring."""
        self._window_ends[seq] = min(length, self._window)
        self._saved.discard(seq)

    def extend(self, num_tokens: Mapping[int, int]) -> None:
        for seq, num in num_tokens.items():
            self._lengths[seq] += num
            self._window_ends[seq] += num

    def rewind(self, seq: int) -> None:
        if self.length(seq) == 0:
            self.drop(seq)
        else:
            self._spoiled.add(seq)  # its rows are as they were; more may have come, which a restore removes

    def clear(self) -> None:
        super().clear()
        for seq in range(self.num_sequences):
            self._place_window(seq, 0)

    @property
    def can_draft(self) -> bool:
        return False

    def _take_back(self, seq: int, length: int) -> int:
        raise InputError(f"sequence {seq} cannot be cut back to {length}")

    def _restore(
        self, seq: int, length: int, share: Share | None, pages: Sequence[PagePart], snapshot: Snapshot | None
    ) -> None:
        if share is not None and length and self._brings_rest(share, length):
            if share.seq != seq:
                self._load(seq, length, self._context.stage_state(share.seq).view)
        elif snapshot is None:
            self._drop(seq)
        elif share is not None and share.seq == seq and length and not pages:
            self._go_back(seq, length, view_of(snapshot.data))
        else:
            self._load(seq, length, self._joined(length, share, pages, view_of(snapshot.data)))

    def _go_back(self, seq: int, length: int, rest: Raw) -> None:
        """Keeps the rows that are there; later ones are not looked at."""
        state = self._context.staging.take(self._layout.partial_bytes(rest)).view
        self._layout.write_partial(rest, state)
        self._load_window(seq, state, length)
        if not self._context.remove(seq, length):
            raise EngineError(f"llama.cpp would not cut sequence {seq} back to {length} tokens")
        self._lengths[seq] = length

    def _joined(self, length: int, share: Share | None, pages: Sequence[PagePart], rest: Raw) -> Raw:
        """The whole state of rows, from a live sequence and from pages, and a rest."""
        staging = self._context.staging
        state = staging.take(self._layout.whole_bytes(length, rest)).view
        rows = self._layout.write_whole(state, length, rest)
        if share is not None and share.length:
            shared = self._context.stage_state(share.seq).view
            copy_rows(rows, self._layout.rows(shared, share.seq), 0, share.length)
        copies = []
        for part in pages:
            page = part.page
            found = self._layout.page_rows(view_of(page.data), page.start, page.end)
            copies.append(partial(copy_rows, rows, found, part.start, part.end))
        staging.run(copies)
        return state

    def _load(self, seq: int, length: int, state: Raw) -> None:
        self._drop(seq)
        self._check_room(length)
        self._context.set_state(seq, state)
        self._lengths[seq] = length
        self._place_window(seq, length)

    def _drop(self, seq: int) -> None:
        self._context.remove(seq)
        self._lengths[seq] = 0
        self._place_window(seq, 0)
