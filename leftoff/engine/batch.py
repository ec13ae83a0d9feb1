"""The batch that is decoded next: tokens of any number of sequences, as llama.cpp reads them."""

from typing import NamedTuple

import numpy as np

from leftoff.engine.binding import abi
from leftoff.engine.errors import InputError
from leftoff.types import Embeddings, Tokens


class BatchPart(NamedTuple):
    """Tokens of one sequence at positions start, start + 1, …; logits are computed of the last `num_logits` of them."""

    seq: int
    tokens: Tokens
    start: int
    num_logits: int = 1


class BatchBuffers:
    """A llama_batch over numpy arrays of fixed capacity."""

    def __init__(self, capacity: int) -> None:
        self.clear()
        self._capacity = capacity
        self._token = np.zeros(capacity, np.int32)
        self._pos = np.zeros(capacity, np.int32)
        self._seq = np.zeros(capacity, np.int32)
        self._num_seqs = np.ones(capacity, np.int32)
        self._logits = np.zeros(capacity, np.int8)
        self._steps = np.arange(capacity, dtype=np.int32)
        # llama.cpp wants a pointer to a list of sequences for each token: here always a list of one
        self._seq_lists = (self._seq.ctypes.data + 4 * np.arange(capacity)).astype(np.uint64)
        arrays = (self._pos, self._num_seqs, self._seq_lists, self._logits)
        self._struct = abi.Batch(0, self._token.ctypes.data, None, *(array.ctypes.data for array in arrays))

    def clear(self) -> None:
        self._picture: tuple[abi.Batch, object] | None = None  # and the arrays that it points into
        self.num_tokens = 0
        self.has_logits = False  # until it was decoded: a failed batch has none

    def add(self, part: BatchPart, seq: int) -> int:
        _, tokens, start, num_logits = part
        first, last = self.num_tokens, self.num_tokens + tokens.size
        if last > self._capacity:
            raise InputError(f"more than {self._capacity} tokens in one batch: split it")
        self.num_tokens = last
        if tokens.size == 1:  # a decode step: every microsecond counts, and slices cost more than items
            self._token[first] = tokens[0]
            self._pos[first] = start
            self._seq[first] = seq
            self._logits[first] = num_logits
            return first
        self._token[first:last] = tokens
        np.add(self._steps[: tokens.size], start, out=self._pos[first:last])
        self._seq[first:last] = seq
        self._logits[first:last] = False
        self._logits[last - num_logits : last] = True
        return last - 1

    def set_picture(self, part: Embeddings, start: int, seq: int, *, has_logits: bool) -> int:
        """Makes it a batch of embeddings, with logits of the last or of none. Returns the row of the last."""
        size = self.num_tokens = len(part.rows)
        if size > self._capacity:
            raise InputError(f"more than {self._capacity} embeddings in one batch: split it")
        rows, positions = np.ascontiguousarray(part.rows), np.ascontiguousarray(part.positions_from(start))
        self._seq[:size] = seq
        self._logits[:size] = False
        self._logits[size - 1] = has_logits
        arrays = (rows, positions, self._num_seqs, self._seq_lists, self._logits)
        self._picture = abi.Batch(size, None, *(array.ctypes.data for array in arrays)), arrays
        return size - 1

    def struct(self) -> abi.Batch:
        if self._picture is not None:
            return self._picture[0]
        self._struct.n_tokens = self.num_tokens
        return self._struct

    def check_row(self, row: int) -> None:
        if not self.has_logits or not 0 <= row < self.num_tokens or not self._logits[row]:
            raise InputError(f"row {row} of the last batch has no logits")
