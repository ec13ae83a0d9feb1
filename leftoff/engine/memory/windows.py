"""The sliding windows of all sequences, kept in the order of their positions.

A window has a cache of its own, smaller than the context, in which llama.cpp goes round and round: behind the last cell
it goes on at the first, over positions that have left the window. Attention adds up in the order of the cells, so the
logits would depend on where in the circle a sequence happens to stand, and on which others came and went. Here the
circle is never closed: before llama.cpp would begin again at the first cell, and after whatever freed cells, all
windows are loaded anew, one behind the other, each in the order of its positions.

    [ window of 0 )[ window of 1 )[ new tokens of both ····> )                     )
    0                              load them anew before this reaches the end      size
"""

from collections.abc import Sequence

import numpy as np

from leftoff.engine.binding.abi import PARTIAL_ONLY
from leftoff.engine.context import Context
from leftoff.engine.memory.arena import Buffer, Raw
from leftoff.engine.memory.layout import Layout


class Windows:
    """`layout` is that of the window's section, which comes first in what PARTIAL_ONLY saves.

    Of each window only what the next token sees is kept in order: llama.cpp takes the cells of all else.
    """

    def __init__(self, context: Context, layout: Layout, num_sequences: int) -> None:
        self._context = context
        self._layout = layout
        self._length = context.model.window - 1  # what the next token sees besides itself
        micro_batch = min(context.settings.micro_batch_tokens, context.settings.batch_tokens)
        # as llama.cpp sizes this cache, less the padding: room for all windows and one micro-batch more
        self._num_cells = min(context.num_cells, context.model.window * (num_sequences + 1) + micro_batch)
        self._end = 0  # no cell from here on is held
        self._is_ordered = True
        self.most_tokens = self._length + micro_batch  # that always fit behind the windows of all sequences

    def disturb(self) -> None:
        """Cells were loaded or freed: nobody knows where the next tokens would go."""
        self._is_ordered = False

    def extend(self, num_tokens: int) -> None:
        self._end += num_tokens

    def clear(self) -> None:
        self._end, self._is_ordered = 0, True

    def save(self, seq: int, length: int) -> Buffer:
        """What a sequence of `length` tokens still sees, and a recurrent state if there is one beside the window.

        Saved by way of the scratch sequence, since cells name theirs: equal states are equal bytes.
        """
        scratch = self._context.scratch
        try:
            self._context.copy(seq, scratch, max(0, length - self._length), length)
            state = self._context.get_state(scratch, PARTIAL_ONLY)
        finally:
            self._context.remove(scratch)
        self._sort(state.view)
        return state

    def prepare(self, lengths: Sequence[int], num_tokens: int) -> None:
        """Before a decode: all new tokens will lie behind all windows."""
        if self._is_ordered and self._end + num_tokens <= self._num_cells:
            return
        seqs = [seq for seq, length in enumerate(lengths) if length]
        end = sum(min(lengths[seq], self._length) for seq in seqs)
        if end > self._num_cells:
            return  # sequences that share most of a small context: there are not cells for each
        states = [self.save(seq, lengths[seq]) for seq in seqs]
        if len(seqs) > 1:  # else loading the first would leave a hole for it where the others still stand
            for seq, state in zip(seqs, states, strict=True):
                self._context.set_state(seq, self._last_cell(state.view), PARTIAL_ONLY)
        for seq, state in zip(seqs, states, strict=True):
            self._context.set_state(seq, state.view, PARTIAL_ONLY)
        self._end, self._is_ordered = end, True

    def _sort(self, state: Raw) -> None:
        num_cells = self._layout.count(state)
        positions = self._layout.positions(state, num_cells)
        if not np.all(positions[:-1] < positions[1:]):
            self._layout.sort(state, num_cells)

    def _last_cell(self, state: Raw) -> Raw:
        """The same with nothing but the last position: llama.cpp ignores a window of none."""
        num_cells = self._layout.count(state)
        section, section_of_one = self._layout.section_end(num_cells), self._layout.section_end(1)
        short = np.empty(section_of_one + state.nbytes - section, np.uint8)
        self._layout.write_frame(short, 1)
        for target, rows in zip(self._layout.rows(short, 1), self._layout.rows(state, num_cells), strict=True):
            target[0] = rows[-1]
        short[section_of_one:] = state[section:]
        return short
