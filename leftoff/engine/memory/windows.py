"""The sliding windows of all sequences: saved as pages by position, and in llama.cpp's memory kept in order.

llama.cpp keeps sliding windows in a KV cache of their own, smaller than the context, and uses it as a ring: after the
last cell it continues at the first, over positions that have left their window. Attention sums over cells in order, so
the logits would depend on where in the ring a sequence stands, and on which other sequences came and went. So the ring
never wraps: before it would, and after any change that freed cells, all windows are saved and loaded again in order:

    cell  0                                                                 num_cells
          [ window of A )[ window of B )[ tokens decoded since ····> )      )
                                        ^ after a reload          ^ end: reload before it reaches num_cells

On a GPU reloading takes a quarter of a prompt's time, and idle sequences beside a request change its last bits anyway.
There the ring wraps, unless prompts are read on a grid, and a sequence can be cut back as far as the ring reaches.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from leftoff.engine.binding.abi import PARTIAL_ONLY
from leftoff.engine.context import Context
from leftoff.engine.errors import BlobError, EngineError
from leftoff.engine.memory.arena import Buffer, Raw, view_of
from leftoff.engine.memory.base import PagePart, Snapshot, Span, WindowPage
from leftoff.engine.memory.join import begin_join
from leftoff.engine.memory.layout import HEADER_BYTES, Layout

_PAGE_TOKENS = 256
_SMALL_BYTES = 32 << 20  # to read such a ring whole takes less than to pass over all cells of a long context twice


class Windows:
    """The windows of all sequences of a context.

    `layout` is that of the window section, which comes first in a PARTIAL_ONLY state. Only the positions that the next
    token attends to are kept; llama.cpp reuses the cells of older ones.
    """

    def __init__(self, context: Context, layout: Layout) -> None:
        self._context = context
        self._layout = layout
        self._length = context.model.window - 1  # positions that the next token attends to, besides its own
        micro_batch = context.micro_batch_tokens
        # as llama.cpp sizes this cache, less its padding: all windows and one micro-batch
        windows = context.model.window * (context.settings.num_sequences + 1)
        self._num_cells = min(context.num_cells, windows + micro_batch)
        self._rest_bytes: int | None = None  # of the recurrent state in a PARTIAL_ONLY state, once that is known
        self._is_small = layout.section_end(self._num_cells) <= _SMALL_BYTES
        self._end = 0  # all cells from here on are free
        self._is_ordered = True
        self.keeps_order = context.keeps_order
        # always fit behind the windows of all sequences
        self.max_batch_tokens = self._length + micro_batch if self.keeps_order else context.num_cells

    def disturb(self) -> None:
        """Notes that cells were loaded or freed, so that the next decode must reload all windows first."""
        self._is_ordered = False

    def extend(self, num_tokens: int) -> None:
        self._end += num_tokens

    def cut(self, num_tokens: int) -> None:
        """Frees the cells of tokens that were decoded last."""
        self._end -= num_tokens

    def clear(self) -> None:
        self._end, self._is_ordered = 0, True

    # --- snapshots

    def save(self, seq: int, length: int, known: Sequence[WindowPage]) -> Snapshot:
        """A snapshot of a sequence of `length` tokens; of its window, only what follows the known pages is read."""
        first = max(0, length - self._length)
        shared = [page for page in known if first < page.end < length]
        if shared and shared[0].start > first:
            shared = []
        start = shared[-1].end if shared else first
        state = self._read_ring(seq) if self._is_small else self._read(seq, start, length)
        section = self._layout.section_end(self._layout.count(state.view))
        rest = np.concatenate([state.view[:HEADER_BYTES], state.view[section:]])
        data = self._context.staging.store(rest.nbytes, partial(np.copyto, src=rest))
        pages = list(self._pages(state, start))
        if shared and pages and pages[0].start != shared[-1].end:
            shared = []  # llama.cpp needs less of the past here, such as after the start of a chunk
        return Snapshot(length, data, (*shared, *pages))

    def load(self, seq: int, snapshot: Snapshot) -> None:
        """Makes the window of `seq` that of the snapshot."""
        parts = list(self._parts(snapshot))
        join = begin_join(self._context.staging, self._layout, parts, view_of(snapshot.data)[HEADER_BYTES:])
        join.load(self._context, seq, PARTIAL_ONLY)

    def copy(self, source: int, target: int, length: int) -> None:
        """Gives `target`, which shares its cells with `source`, a window of its own.

        llama.cpp never reuses cells of old positions that two sequences share.
        """
        if self.keeps_order:
            return  # `prepare` reloads all of them
        state = self._read(source, max(0, length - self._length), length)
        self._context.set_state(target, state.view, PARTIAL_ONLY)

    def _read(self, seq: int, start: int, end: int) -> Buffer:
        """The window's cells of [start, end), and the recurrent state if there is one too.

        Copied to the scratch sequence first: a cell stores its sequence, and equal windows should be equal bytes.
        """
        with self._context.scratch() as scratch:
            self._context.copy(seq, scratch, start, end)
            nbytes = self._layout.section_end(end - start) + self._rest_bytes if self._rest_bytes is not None else None
            state = self._context.stage_state(scratch, PARTIAL_ONLY, nbytes)
        if self._rest_bytes is None:
            self._rest_bytes = state.nbytes - self._layout.section_end(self._layout.count(state.view))
        return state

    def _read_ring(self, seq: int) -> Buffer:
        """All that the ring has of a sequence: more than its window, but read without a pass over attention's cells."""
        state = self._context.stage_state(seq, PARTIAL_ONLY)
        self._layout.forget_sequence(state.view, self._layout.count(state.view))
        return state

    def _pages(self, state: Buffer, start: int) -> Iterator[WindowPage]:
        """The cells of a state from `start` on, by their positions, as pages that threads may still write."""
        num_cells = self._layout.count(state.view)
        positions = self._layout.positions(state.view, num_cells)
        order = np.argsort(positions, kind="stable")
        order = order[np.searchsorted(positions[order], start) :]
        first = int(positions[order[0]]) if order.size else 0
        if not np.array_equal(positions[order], np.arange(first, first + order.size)):
            raise EngineError(f"llama.cpp has lost a part of the window that begins at {first}")
        for begin, end in _cut_at_pages(first, first + order.size):
            cells = order[begin - first : end - first]
            fill = partial(self._layout.pick_out, state.view, num_cells, cells)
            yield WindowPage(begin, end, self._context.staging.store(self._layout.section_end(end - begin), fill))

    def _parts(self, snapshot: Snapshot) -> Iterator[PagePart]:
        """The parts of the window pages that the next token attends to; the pages must follow each other."""
        first, covered = max(0, snapshot.position - self._length), None
        for page in snapshot.window:
            if page.nbytes != self._layout.section_end(page.end - page.start) or covered not in (None, page.start):
                raise BlobError(
                    f"window page [{page.start}, {page.end}) does not fit a snapshot at {snapshot.position}"
                )
            covered = page.end
            if page.end > first:
                yield PagePart(page, max(page.start, first), page.end)
        if covered != snapshot.position:
            raise BlobError(f"the window of the snapshot at {snapshot.position} ends at {covered}")

    # --- the order of cells

    def prepare(self, lengths: Sequence[int], num_tokens: int) -> None:
        """Before a decode of `num_tokens`: reloads all windows if the new tokens would not lie above them."""
        if not self.keeps_order or (self._is_ordered and self._end + num_tokens <= self._num_cells):
            return
        seqs = [seq for seq, length in enumerate(lengths) if length]
        end = sum(min(lengths[seq], self._length) for seq in seqs)
        if end > self._num_cells:
            return  # sequences share most of a small context: there are too few cells for a copy each
        states = [self._ordered_state(seq, lengths[seq]) for seq in seqs]
        if len(seqs) > 1:  # shrink all first: else the first would be loaded around the cells of the others
            for seq, state in zip(seqs, states, strict=True):
                self._context.set_state(seq, self._last_cell(state), PARTIAL_ONLY)
        for seq, state in zip(seqs, states, strict=True):
            self._context.set_state(seq, state, PARTIAL_ONLY)
        self._end, self._is_ordered = end, True

    def _ordered_state(self, seq: int, length: int) -> Raw:
        read = self._read(seq, max(0, length - self._length), length)
        state = self._context.staging.keep(read, read.nbytes).view
        self._layout.sort(state, self._layout.count(state))
        return state

    def _last_cell(self, state: Raw) -> Raw:
        """The state with the last position of its window only: llama.cpp ignores an empty window."""
        num_cells = self._layout.count(state)
        section, section_of_one = self._layout.section_end(num_cells), self._layout.section_end(1)
        short = np.empty(section_of_one + state.nbytes - section, np.uint8)
        self._layout.cut_out(state, num_cells, num_cells - 1, num_cells, short)
        short[section_of_one:] = state[section:]
        return short


def _cut_at_pages(start: int, end: int) -> Iterator[Span]:
    while start < end:
        border = min(end, (start // _PAGE_TOKENS + 1) * _PAGE_TOKENS)
        yield start, border
        start = border
