"""Counts the attention cells in use. llama.cpp shares cells between sequences and does not say how many are free."""

import numpy as np


class CellLedger:
    """One entry per cell: how many sequences hold it. Mirrors what llama.cpp does, cell for cell."""

    def __init__(self, num_cells: int, num_sequences: int) -> None:
        self._holders = np.zeros(num_cells, np.int32)
        self._table = np.zeros((num_sequences, num_cells), np.int32)
        self._free = np.arange(num_cells - 1, -1, -1, dtype=np.int32)  # a stack of cells that nobody holds
        self.num_free = num_cells
        self.lengths = [0] * num_sequences

    def extend(self, seq: int, num_tokens: int) -> None:
        start = self.lengths[seq]
        self.num_free -= num_tokens
        taken = self._free[self.num_free : self.num_free + num_tokens]
        self._table[seq, start : start + num_tokens] = taken
        self._holders[taken] = 1
        self.lengths[seq] = start + num_tokens

    def share(self, source: int, target: int, length: int) -> None:
        """`target`, which is empty, holds the first `length` cells of `source` too."""
        cells = self._table[source, :length]
        self._table[target, :length] = cells
        self._holders[cells] += 1
        self.lengths[target] = length

    def cut(self, seq: int, length: int) -> None:
        cells = self._table[seq, length : self.lengths[seq]]
        self._holders[cells] -= 1
        freed = cells[self._holders[cells] == 0]
        self._free[self.num_free : self.num_free + freed.size] = freed
        self.num_free += freed.size
        self.lengths[seq] = length
