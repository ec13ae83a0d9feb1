"""Keeps the cells of sliding windows in the order of their positions.

llama.cpp keeps sliding windows in a KV cache of their own, smaller than the context, and uses it as a ring: after the
last cell it continues at the first, over positions that have left their window. Attention sums over cells in order, so
the logits would depend on where in the ring a sequence stands, and on which other sequences came and went. So the ring
never wraps: before it would, and after any change that freed cells, all windows are saved and loaded again in order:

    cell  0                                                                 num_cells
          [ window of A )[ window of B )[ tokens decoded since ····> )      )
                                        ^ after a reload          ^ end: reload before it reaches num_cells
"""

from collections.abc import Sequence

import numpy as np

from leftoff.engine.binding.abi import PARTIAL_ONLY
from leftoff.engine.context import Context
from leftoff.engine.memory.arena import Buffer, LateBuffer, Raw
from leftoff.engine.memory.layout import Layout


class Windows:
    """The windows of all sequences of a context.

    `layout` is that of the window section, which comes first in a PARTIAL_ONLY state. Only the positions that the next
    token attends to are kept; llama.cpp reuses the cells of older ones.
    """

    def __init__(self, context: Context, layout: Layout, num_sequences: int) -> None:
        self._context = context
        self._layout = layout
        self._length = context.model.window - 1  # positions that the next token attends to, besides its own
        micro_batch = min(context.settings.micro_batch_tokens, context.settings.batch_tokens)
        # as llama.cpp sizes this cache, less its padding: all windows and one micro-batch
        self._num_cells = min(context.num_cells, context.model.window * (num_sequences + 1) + micro_batch)
        self._end = 0  # all cells from here on are free
        self._is_ordered = True
        self.max_batch_tokens = self._length + micro_batch  # always fit behind the windows of all sequences

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

    def save(self, seq: int, length: int) -> Buffer | LateBuffer:
        """Saves the window of a sequence of `length` tokens, and its recurrent state if it has one too.

        Copied to the scratch sequence first: a cell stores its sequence, and equal windows should be equal bytes.
        """
        with self._context.scratch() as scratch:
            self._context.copy(seq, scratch, max(0, length - self._length), length)
            state = self._context.stage_state(scratch, PARTIAL_ONLY)
        num_cells = self._layout.count(state.view)
        positions = self._layout.positions(state.view, num_cells)
        if not np.all(positions[:-1] < positions[1:]):
            self._layout.sort(state.view, num_cells)
        return self._context.staging.keep(state, state.nbytes)

    def prepare(self, lengths: Sequence[int], num_tokens: int) -> None:
        """Before a decode of `num_tokens`: reloads all windows if the new tokens would not lie above them."""
        if self._is_ordered and self._end + num_tokens <= self._num_cells:
            return
        seqs = [seq for seq, length in enumerate(lengths) if length]
        end = sum(min(lengths[seq], self._length) for seq in seqs)
        if end > self._num_cells:
            return  # sequences share most of a small context: there are too few cells for a copy each
        states = [self.save(seq, lengths[seq]) for seq in seqs]
        if len(seqs) > 1:  # shrink all first: else the first would be loaded around the cells of the others
            for seq, state in zip(seqs, states, strict=True):
                self._context.set_state(seq, self._last_cell(state.view), PARTIAL_ONLY)
        for seq, state in zip(seqs, states, strict=True):
            self._context.set_state(seq, state.view, PARTIAL_ONLY)
        self._end, self._is_ordered = end, True

    def _last_cell(self, state: Raw) -> Raw:
        """The state with the last position of its window only: llama.cpp ignores an empty window."""
        num_cells = self._layout.count(state)
        section, section_of_one = self._layout.section_end(num_cells), self._layout.section_end(1)
        short = np.empty(section_of_one + state.nbytes - section, np.uint8)
        self._layout.write_frame(short, 1)
        for target, rows in zip(self._layout.rows(short, 1), self._layout.rows(state, num_cells), strict=True):
            target[0] = rows[-1]
        short[section_of_one:] = state[section:]
        return short
