"""Counts the attention cells in use. llama.cpp shares cells between sequences and does not say how many are free."""

import numpy as np


class CellLedger:
    """One entry per cell: how many sequences hold it. Mirrors what llama.cpp does, cell for cell.

    Growth is only counted; cells are handed out when a sequence is shared or cut, so that a decode step costs nothing.
    """

    def __init__(self, num_cells: int, num_sequences: int) -> None:
        self._holders = np.zeros(num_cells, np.int32)
        self._table = np.zeros((num_sequences, num_cells), np.int32)
        self._handed_out = [0] * num_sequences
        self._free = np.arange(num_cells - 1, -1, -1, dtype=np.int32)  # a stack of cells that nobody holds
        self._num_on_stack = num_cells
        self.num_free = num_cells
        self.lengths = [0] * num_sequences

    def extend(self, seq: int, num_tokens: int) -> None:
        self.num_free -= num_tokens
        self.lengths[seq] += num_tokens

    def share(self, source: int, target: int, length: int) -> None:
        """`target`, which is empty, holds the first `length` cells of `source` too."""
        self._hand_out(source)
        cells = self._table[source, :length]
        self._table[target, :length] = cells
        self._holders[cells] += 1
        self.lengths[target] = self._handed_out[target] = length

    def cut(self, seq: int, length: int) -> None:
        self._hand_out(seq)
        cells = self._table[seq, length : self.lengths[seq]]
        self._holders[cells] -= 1
        freed = cells[self._holders[cells] == 0]
        self._free[self._num_on_stack : self._num_on_stack + freed.size] = freed
        self._num_on_stack += freed.size
        self.num_free += int(freed.size)
        self.lengths[seq] = self._handed_out[seq] = length

    def _hand_out(self, seq: int) -> None:
        start, end = self._handed_out[seq], self.lengths[seq]
        self._num_on_stack -= end - start
        taken = self._free[self._num_on_stack : self._num_on_stack + end - start]
        self._table[seq, start:end] = taken
        self._holders[taken] = 1
        self._handed_out[seq] = end
