"""The layout of the attention section in llama.cpp's state bytes, so that pages can be joined without llama.cpp.

    magic u32, seq i32 | num_streams u32, num_cells u32 | one entry per cell | v_trans u32, num_layers u32, ...
    | per tensor (K of every layer, then V): type i32, row_bytes u64, one row per cell | what cannot be cut

The layout differs between builds and models. It is learned from a state of known length, and used only if it accounts
for every byte.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from leftoff.engine.memory.arena import Raw, view_of
from leftoff.engine.memory.base import PagePart

CellNumbers = npt.NDArray[np.intp]

HEADER_BYTES = 8  # magic, seq
_SECTION = struct.Struct("<II")  # num_streams, num_cells
_TENSOR = struct.Struct("<iQ")  # type, row_bytes
_CELL_SIZES = (12, 24)  # pos, num_seqs, seq; and with M-RoPE two more coordinates and a pad
_SHAPE_SIZES = (8, 16)  # v_trans, num_layers; and in newer builds n_rot_k, n_rot_v


@dataclass(frozen=True)
class Layout:
    """The attention section of one context, for any number of cells."""

    header: bytes
    num_streams: int
    cell_bytes: int
    shape: bytes
    tensors: tuple[bytes, ...]  # the bytes before the rows of each tensor
    row_bytes: tuple[int, ...]

    @property
    def bytes_per_token(self) -> int:
        return self.cell_bytes + sum(self.row_bytes)

    @cached_property
    def fixed_bytes(self) -> int:
        return HEADER_BYTES + _SECTION.size + len(self.shape) + _TENSOR.size * len(self.tensors)

    def section_end(self, num_cells: int) -> int:
        """Offset at which the section ends and what cannot be cut begins. An empty one has no shape and no tensors."""
        if num_cells == 0:
            return HEADER_BYTES + _SECTION.size
        return self.fixed_bytes + num_cells * self.bytes_per_token

    def count(self, blob: Raw) -> int:
        """Number of cells in a section."""
        num_cells: int = _SECTION.unpack_from(blob[: HEADER_BYTES + _SECTION.size].tobytes(), HEADER_BYTES)[1]
        return num_cells

    def positions(self, blob: Raw, num_cells: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """The position of each cell, in the order of the cells."""
        start = HEADER_BYTES + _SECTION.size
        cells = blob[start : start + num_cells * self.cell_bytes].reshape(num_cells, self.cell_bytes)
        return np.ascontiguousarray(cells[:, :4]).view(np.int32).ravel()

    def rows(self, blob: Raw, num_cells: int) -> list[Raw]:
        """Views of the parts of `blob` that have one row per cell: the entries of the cells, then each tensor."""
        offset = HEADER_BYTES + _SECTION.size
        matrices = []
        for width, gap in zip((self.cell_bytes, *self.row_bytes), self._gaps, strict=True):
            offset += gap
            matrices.append(blob[offset : offset + num_cells * width].reshape(num_cells, width))
            offset += num_cells * width
        return matrices

    def write_frame(self, blob: Raw, num_cells: int) -> None:
        """Writes everything that is not a row."""
        section = self.header + _SECTION.pack(self.num_streams, num_cells)
        offset = _put(blob, 0, section) + num_cells * self.cell_bytes
        offset = _put(blob, offset, self.shape)
        for tensor, width in zip(self.tensors, self.row_bytes, strict=True):
            offset = _put(blob, offset, tensor) + num_cells * width

    def copy_part(self, part: PagePart, blob: Raw, num_cells: int, first: int) -> None:
        """Copies a part of a page to the cells from `first` on of a section whose frame is written."""
        page = part.page
        start, end = part.start - page.start, part.end - page.start
        source = view_of(page.data)
        for width, target, rows in self._blocks(blob, num_cells, source, page.end - page.start):
            np.copyto(
                target[:, first * width : (first + part.num_tokens) * width], rows[:, start * width : end * width]
            )

    def cut_out(self, blob: Raw, num_cells: int, first: int, last: int, page: Raw) -> None:
        """Writes the cells [first, last) of a section as a section of their own."""
        self.write_frame(page, last - first)
        for width, target, rows in self._blocks(page, last - first, blob, num_cells):
            np.copyto(target, rows[:, first * width : last * width])

    def pick_out(self, blob: Raw, num_cells: int, cells: CellNumbers, page: Raw) -> None:
        """Writes some cells of a section, in the order that is given, as a section of their own."""
        first = int(cells[0])
        if np.array_equal(cells, np.arange(first, first + cells.size)):
            self.cut_out(blob, num_cells, first, first + cells.size, page)
            return
        self.write_frame(page, cells.size)
        for target, rows in zip(self.rows(page, cells.size), self.rows(blob, num_cells), strict=True):
            np.take(rows, cells, axis=0, out=target)

    def _blocks(
        self, target: Raw, num_target_cells: int, source: Raw, num_source_cells: int
    ) -> Iterator[tuple[int, Raw, Raw]]:
        """The same tensors of two sections: their row width, and one line for all rows of a tensor.

        Tensors of one width that follow each other are one block, which is copied in one call, without the GIL.
        """
        for number, count, width in self._runs:
            views = []
            for blob, num_cells in ((target, num_target_cells), (source, num_source_cells)):
                length = num_cells * width
                stride = length + _TENSOR.size
                start = self._row_offset(number, num_cells)
                lines = as_strided(blob[start : start + (count - 1) * stride + length], (count, length), (stride, 1))
                views.append(lines)
            yield width, views[0], views[1]

    @cached_property
    def _runs(self) -> tuple[tuple[int, int, int], ...]:
        """The cells' entries, then the tensors: number of the first, count and width of those that are alike."""
        widths = (self.cell_bytes, *self.row_bytes)
        runs = [(0, 1, widths[0])]
        for width, numbers in groupby(range(1, len(widths)), key=widths.__getitem__):
            first, *others = numbers
            runs.append((first, 1 + len(others), width))
        return tuple(runs)

    def _row_offset(self, number: int, num_cells: int) -> int:
        """Where the rows of a matrix of `rows` begin."""
        before = sum((self.cell_bytes, *self.row_bytes)[:number])
        return HEADER_BYTES + _SECTION.size + sum(self._gaps[: number + 1]) + num_cells * before

    def sort(self, blob: Raw, num_cells: int) -> None:
        """Sorts the cells by position: llama.cpp writes them in the order of its memory."""
        order = np.argsort(self.positions(blob, num_cells), kind="stable")
        for matrix in self.rows(blob, num_cells):
            matrix[:] = matrix[order]

    @cached_property
    def _gaps(self) -> tuple[int, ...]:
        """Number of bytes before each matrix of `rows` that belong to no row."""
        gaps = [0, *(_TENSOR.size for _ in self.tensors)]
        if self.tensors:
            gaps[1] += len(self.shape)
        return tuple(gaps)


def _put(blob: Raw, offset: int, content: bytes) -> int:
    end = offset + len(content)
    blob[offset:end] = np.frombuffer(content, np.uint8)
    return end


def learn_layout(blob: Raw, end: int, section_end: int) -> Layout | None:
    """The layout of the state of a sequence whose last position is end - 1. None if it is not a known one."""
    for layout in _candidates(bytes(blob[:section_end]), end, None):
        if layout.section_end(layout.count(blob)) == section_end:
            return layout
    return None


def learn_window_layout(blob: Raw, end: int, bytes_per_token: int) -> Layout | None:
    """The layout of a window section, which a recurrent state may follow; a token adds `bytes_per_token` to it."""
    for layout in _candidates(bytes(blob), end, 2):
        if layout.bytes_per_token == bytes_per_token:
            return layout
    return None


def _candidates(blob: bytes, end: int, tensors_per_layer: int | None) -> Iterator[Layout]:
    for cell_bytes in _CELL_SIZES:
        for shape_bytes in _SHAPE_SIZES:
            layout = _parse(blob, end, cell_bytes, shape_bytes, tensors_per_layer)
            if layout is not None:
                yield layout


def _parse(blob: bytes, end: int, cell_bytes: int, shape_bytes: int, tensors_per_layer: int | None) -> Layout | None:
    """Reads a section with entries and shape of these sizes. `tensors_per_layer` None: tensors up to the blob's end."""
    num_streams, num_cells = _SECTION.unpack_from(blob, HEADER_BYTES)
    if num_streams != 1 or not 0 < num_cells <= end:
        return None
    offset = HEADER_BYTES + _SECTION.size
    for position in range(end - num_cells, end):
        if blob[offset : offset + 8] != struct.pack("<iI", position, 1):
            return None
        offset += cell_bytes
    shape = blob[offset : offset + shape_bytes]
    if len(shape) < shape_bytes or shape[:4] != bytes(4):  # a transposed V cannot be joined row by row
        return None
    offset += shape_bytes
    most = tensors_per_layer * int.from_bytes(shape[4:8], "little") if tensors_per_layer else len(blob)
    tensors: list[bytes] = []
    row_bytes: list[int] = []
    while offset + _TENSOR.size <= len(blob) and len(tensors) < most:
        tensors.append(blob[offset : offset + _TENSOR.size])
        row_bytes.append(_TENSOR.unpack(tensors[-1])[1])
        offset += _TENSOR.size + row_bytes[-1] * num_cells
    if offset > len(blob):
        return None
    return Layout(blob[:HEADER_BYTES], num_streams, cell_bytes, shape, tuple(tensors), tuple(row_bytes))
