"""Mirrors llama.cpp's KV cells: which cell holds which position of which sequence.

llama.cpp places new tokens in the lowest free cells and shares cells between sequences, but reports neither. Both
matter: the number of free cells decides what fits, and their order decides the rounding, because attention sums over
the cells in order. A sequence that continues in a hole below its own cells gets other logits than one that does not:

    cell                 0    1    2    3    4    5    6
    A was cut back to 2  A0   A1   ·    ·    B0   B1   ·
    decode B             A0   A1   B2   ·    B0   B1   ·     B2 is summed before B0
    move B down first    A0   A1   B0   B1   B2   ·    ·     in order: `first_misplaced` says what to move

The same happens when pages are loaded behind shared cells: they go into a hole below those. On a GPU cells are not
moved: idle sequences between them change the rounding there anyway, and a move takes longer than a turn.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

Cells = npt.NDArray[np.int32]

_NEAR = 1024  # cells to look at first for free ones: holes are rarely far apart


class CellMap:
    """The cells of each sequence by position, and how many sequences hold each cell. Never calls llama.cpp."""

    def __init__(self, num_cells: int, num_sequences: int) -> None:
        self._holders = np.zeros(num_cells, np.int32)
        self._table = np.zeros((num_sequences, num_cells), np.int32)
        self._lowest_free = 0  # all cells below are held
        self._end = 0  # all cells from here on are free
        self.num_free = num_cells
        self.lengths = [0] * num_sequences  # always this same list
        self._disordered: set[int] = set()  # sequences with a later position in a lower cell

    @property
    def is_orderly(self) -> bool:
        """Whether every sequence can grow as it is: its cells ascend, and new ones come after them."""
        return not self.has_holes and not self._disordered

    @property
    def has_holes(self) -> bool:
        """Whether there are free cells below held ones: llama.cpp would place the next tokens there."""
        return self._lowest_free < self._end

    def extend(self, seq: int, num_tokens: int) -> None:
        """Appends tokens to a sequence, in the lowest free cells."""
        start = self.lengths[seq]
        if num_tokens == 0:
            return
        if num_tokens == 1 and not self.has_holes:  # a decode step: every microsecond counts
            self._table[seq, start] = self._end
            self._holders[self._end] = 1
            self._end += 1
            self._lowest_free = self._end
        else:
            cells = self._take(num_tokens)
            if start and cells[0] < self._table[seq, start - 1]:
                self._disordered.add(seq)
            self._table[seq, start : start + num_tokens] = cells
            self._holders[cells] = 1
        self.num_free -= num_tokens
        self.lengths[seq] = start + num_tokens

    def share(self, source: int, target: int, length: int) -> None:
        """Lets `target`, which is empty, hold the first `length` cells of `source` too."""
        cells = self._table[source, :length]
        self._table[target, :length] = cells
        self._holders[cells] += 1
        self.lengths[target] = length
        if source in self._disordered:
            self._disordered.add(target)
            self._check_order(target)

    def cut(self, seq: int, length: int) -> None:
        """Cuts a sequence back; cells that no other sequence holds become free."""
        cells = self._table[seq, length : self.lengths[seq]]
        self.lengths[seq] = length
        self._check_order(seq)
        self._holders[cells] -= 1
        freed = cells[self._holders[cells] == 0]
        if freed.size == 0:
            return
        self.num_free += int(freed.size)
        self._lowest_free = min(self._lowest_free, int(freed.min()))
        if int(freed.max()) == self._end - 1:
            held = np.flatnonzero(self._holders[: self._end])
            self._end = int(held[-1]) + 1 if held.size else 0

    def clear(self) -> None:
        self._holders[:] = 0
        self._lowest_free = self._end = 0
        self.num_free = self._holders.size
        self.lengths[:] = [0] * len(self.lengths)
        self._disordered.clear()

    def first_misplaced(self, seq: int) -> int | None:
        """The first position with a free cell or a later position of its own below it: it and all later ones must move.

        None if the cells of the sequence ascend, and it would continue above them.
        """
        cells = self._table[seq, : self.lengths[seq]]
        if seq in self._disordered:
            lowest_left = np.minimum.accumulate(cells[::-1])[::-1]
            return int(np.argmax(cells > np.minimum(lowest_left, self._lowest_free)))
        if cells.size == 0 or cells[-1] < self._lowest_free:
            return None
        return int(np.searchsorted(cells, self._lowest_free))

    def next_runs(self, num_tokens: int) -> list[int]:
        """The lengths of the runs of neighbouring cells that so many new tokens would take."""
        cells = self._free(num_tokens)
        ends = np.flatnonzero(np.diff(cells) != 1) + 1
        return [int(length) for length in np.diff(ends, prepend=0, append=cells.size)]

    def cell(self, seq: int, position: int) -> int:
        return int(self._table[seq, position])

    def num_own(self, seq: int, start: int) -> int:
        """Number of cells from position `start` on that no other sequence holds."""
        return int(np.count_nonzero(self._holders[self._table[seq, start : self.lengths[seq]]] == 1))

    def _check_order(self, seq: int) -> None:
        """A sequence that was cut back may be in order again."""
        if seq in self._disordered and np.all(np.diff(self._table[seq, : self.lengths[seq]]) > 0):
            self._disordered.remove(seq)

    def _take(self, num_tokens: int) -> Cells:
        if not self.has_holes:
            cells = np.arange(self._end, self._end + num_tokens, dtype=np.int32)
            self._lowest_free = self._end = self._end + num_tokens
            return cells
        free = self._free(num_tokens + 1)
        cells = free[:num_tokens]
        self._lowest_free = int(free[num_tokens]) if free.size > num_tokens else self._holders.size
        self._end = max(self._end, int(cells[-1]) + 1)
        return cells

    def _free(self, most: int) -> Cells:
        """The lowest free cells: `most`, or all there are."""
        held = self._holders[self._lowest_free :]
        free = np.flatnonzero(held[: most + _NEAR] == 0)
        if free.size < most:
            free = np.flatnonzero(held == 0)
        return (free[:most] + self._lowest_free).astype(np.int32)


def equal_rounds(num_tokens: Mapping[int, int], micro_batch_tokens: int) -> Iterator[tuple[int, int]]:
    """Pairs of sequence and number of tokens, in the order in which llama.cpp assigns cells for a hybrid model.

    For recurrent layers it splits a batch into micro-batches with equally many tokens of every sequence that is left.
    """
    left = dict(num_tokens)
    while left:
        seqs = list(left)
        share = min(*left.values(), max(1, micro_batch_tokens // len(seqs)))
        for seq in seqs:
            yield seq, share
            left[seq] -= share
            if not left[seq]:
                del left[seq]
