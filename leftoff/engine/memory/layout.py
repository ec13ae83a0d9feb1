"""The layout of the attention sections in llama.cpp's state bytes, so that pages can be joined without llama.cpp.

    magic u32, seq i32 | section | … | what cannot be cut
    section: num_streams u32, num_cells u32 | one entry per cell | v_trans u32, num_layers u32, ...
             | per tensor (K of every layer, then V): type i32, row_bytes u64, one row per cell

Most models have one section. DeepSeek-V3.2 has two, of the same cells: the keys of its attention, and those of the
indexer that selects what attention reads. In hybrids with an indexer, what cannot be cut stands between the two; pages
have that of no tokens there. The layout differs between builds and models. It is learned from a state of known length,
and used only if it accounts for every byte.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from leftoff.engine.memory.arena import Raw
from leftoff.engine.memory.base import PagePart

CellNumbers = npt.NDArray[np.intp]
OpenPart = tuple[Raw, PagePart]  # the bytes of a page, and the part of it that is meant

HEADER_BYTES = 8  # magic, seq
_SECTION = struct.Struct("<II")  # num_streams, num_cells
_TENSOR = struct.Struct("<iQ")  # type, row_bytes
_CELL_SIZES = (12, 24)  # pos, num_seqs, seq; and with M-RoPE two more coordinates and a pad
_SEQUENCE_BYTES = 4  # at the end of a cell
_COLUMN, _ROW = 2, 3  # of a picture, among the numbers of a cell with M-RoPE
SHAPE_SIZES = (8, 16)  # v_trans, num_layers; and in newer builds n_rot_k, n_rot_v
_TENSORS_PER_LAYER = (1, 2)  # K alone, as in latent attention, or K and V


@dataclass(frozen=True)
class Section:
    """One KV cache of a context, for any number of cells."""

    num_streams: int
    cell_bytes: int
    shape: bytes
    tensors: tuple[bytes, ...]  # the bytes before the rows of each tensor
    row_bytes: tuple[int, ...]
    before: bytes = b""  # what cannot be cut, of a sequence without tokens, if it stands before this section

    @property
    def bytes_per_token(self) -> int:
        return self.cell_bytes + sum(self.row_bytes)

    @cached_property
    def fixed_bytes(self) -> int:
        return len(self.before) + _SECTION.size + len(self.shape) + _TENSOR.size * len(self.tensors)

    def nbytes(self, num_cells: int) -> int:
        """An empty section has no shape and no tensors."""
        return self.fixed_bytes + num_cells * self.bytes_per_token if num_cells else len(self.before) + _SECTION.size

    def write_frame(self, blob: Raw, offset: int, num_cells: int) -> int:
        offset = put(blob, offset, self.before + _SECTION.pack(self.num_streams, num_cells))
        offset += num_cells * self.cell_bytes
        return put(blob, offset, self.shape) + _TENSOR.size * len(self.tensors) + num_cells * sum(self.row_bytes)


class _Run(NamedTuple):
    """Tensors of one width that follow each other, which are copied in one call; or the entries of the cells."""

    offset: int  # of the first row, in a state without cells
    bytes_before: int  # of the rows of one cell that come before
    heads: Raw  # the bytes before the rows of each tensor; none before the entries of cells
    width: int

    @property
    def has_entries(self) -> bool:
        return self.heads.nbytes == 0

    def rows(self, blob: Raw, num_cells: int) -> Raw:
        """The row of each cell in each tensor: a view with these three axes."""
        return self.lines(blob, num_cells).reshape(len(self.heads), num_cells, self.width)

    def lines(self, blob: Raw, num_cells: int) -> Raw:
        """One line for all rows of each tensor."""
        return self._lines_with_heads(blob, num_cells)[:, self.heads.shape[1] :]

    def part_lines(self, source: Raw, part: PagePart) -> Raw:
        """The lines of a part of a page, whose bytes are `source`."""
        page = part.page
        lines = self.lines(source, page.end - page.start)
        if part.start == page.start and part.end == page.end:
            return lines
        return lines[:, (part.start - page.start) * self.width : (part.end - page.start) * self.width]

    def write_heads(self, blob: Raw, num_cells: int) -> None:
        self._lines_with_heads(blob, num_cells)[:, : self.heads.shape[1]] = self.heads

    def first_head(self, blob: Raw, num_cells: int) -> Raw:
        """The bytes before the rows of the first tensor."""
        return self._lines_with_heads(blob, num_cells)[0, : self.heads.shape[1]]

    def _lines_with_heads(self, blob: Raw, num_cells: int) -> Raw:
        num_tensors, head_bytes = self.heads.shape
        length = head_bytes + num_cells * self.width
        start = self.offset - head_bytes + num_cells * self.bytes_before
        return blob[start : start + num_tensors * length].reshape(num_tensors, length)


@dataclass(frozen=True)
class Layout:
    """The attention sections of one context, for any number of cells. All of them have the same cells."""

    header: bytes
    sections: tuple[Section, ...]
    is_refused_headless: bool = False  # the library was seen to refuse a state whose first head is wrong

    @cached_property
    def bytes_per_token(self) -> int:
        return sum(section.bytes_per_token for section in self.sections)

    @cached_property
    def _fixed_bytes(self) -> int:
        return len(self.header) + sum(section.fixed_bytes for section in self.sections)

    @cached_property
    def has_rest_inside(self) -> bool:
        """Whether what cannot be cut stands between sections, and not behind them."""
        return any(section.before for section in self.sections)

    def section_end(self, num_cells: int) -> int:
        """Offset at which the last section ends and what cannot be cut begins."""
        if num_cells == 0:
            return len(self.header) + sum(section.nbytes(0) for section in self.sections)
        return self._fixed_bytes + num_cells * self.bytes_per_token

    def count(self, blob: Raw) -> int:
        """Number of cells in each section."""
        start = len(self.header)
        num_cells: int = _SECTION.unpack(blob[start : start + _SECTION.size].tobytes())[1]
        return num_cells

    def positions(self, blob: Raw, num_cells: int) -> npt.NDArray[np.int32]:
        """The position of each cell, in the order of the cells."""
        return _numbers(self.runs[0].rows(blob, num_cells)[0][:, :4]).ravel()

    def forget_sequence(self, blob: Raw, num_cells: int) -> None:
        """Clears the sequence that each cell names: llama.cpp does not read it, and equal states should be equal."""
        for run in self.runs:
            if run.has_entries:
                run.rows(blob, num_cells)[..., -_SEQUENCE_BYTES:] = 0

    def write_frame(self, blob: Raw, num_cells: int) -> None:
        """Writes everything that is not a row."""
        offset = put(blob, 0, self.header)
        for section in self.sections:
            offset = section.write_frame(blob, offset, num_cells)
        for run in self.runs:
            run.write_heads(blob, num_cells)

    def first_head(self, blob: Raw, num_cells: int) -> Raw:
        """The bytes before the first row of all, which llama.cpp looks at before it copies any. None without rows."""
        run = next((run for run in self.runs if not run.has_entries), self.runs[0])
        return run.first_head(blob, num_cells)

    def copy_entries(self, pages: Sequence[OpenPart], blob: Raw, num_cells: int) -> None:
        """Writes the entries of all cells of a state with its frame: those of parts of pages that follow each other."""
        self._copy([run for run in self.runs if run.has_entries], pages, blob, num_cells, 0)

    def copy_rows(self, pages: Sequence[OpenPart], blob: Raw, num_cells: int, first: int) -> None:
        """Writes the rows of the cells from `first` on."""
        self._copy([run for run in self.runs if not run.has_entries], pages, blob, num_cells, first)

    def _copy(self, runs: Sequence[_Run], pages: Sequence[OpenPart], blob: Raw, num_cells: int, first: int) -> None:
        last = first + sum(part.num_tokens for _, part in pages)
        for run in runs:
            target = run.lines(blob, num_cells)[:, first * run.width : last * run.width]
            lines = [run.part_lines(source, part) for source, part in pages]
            np.concatenate(lines, axis=1, out=target)  # one call, most of it without the GIL

    def cut_out(self, blob: Raw, num_cells: int, first: int, last: int, page: Raw) -> None:
        """Writes the cells [first, last) of a state as a state of their own."""
        self.write_frame(page, last - first)
        for run in self.runs:
            target, rows = run.lines(page, last - first), run.lines(blob, num_cells)
            np.copyto(target, rows[:, first * run.width : last * run.width])

    @cached_property
    def runs(self) -> tuple[_Run, ...]:
        """All that has one row per cell: of each section the entries of its cells, then its tensors."""
        runs = []
        offset, bytes_before = len(self.header), 0
        for section in self.sections:
            offset += len(section.before) + _SECTION.size
            runs.append(_Run(offset, bytes_before, np.empty((1, 0), np.uint8), section.cell_bytes))
            offset += len(section.shape)
            bytes_before += section.cell_bytes
            for width, alike in groupby(zip(section.row_bytes, section.tensors, strict=True), itemgetter(0)):
                heads = [tensor for _, tensor in alike]
                matrix = np.frombuffer(b"".join(heads), np.uint8).reshape(len(heads), _TENSOR.size)
                runs.append(_Run(offset + _TENSOR.size, bytes_before, matrix, width))
                offset += matrix.nbytes
                bytes_before += width * len(heads)
        return tuple(runs)

    def pick_out(self, blob: Raw, num_cells: int, cells: CellNumbers, page: Raw) -> None:
        """Writes some cells of a state, in the order that is given, as a state of their own."""
        first = int(cells[0])
        if np.array_equal(cells, np.arange(first, first + cells.size)):
            self.cut_out(blob, num_cells, first, first + cells.size, page)
            return
        self.write_frame(page, cells.size)
        for run in self.runs:
            run.rows(page, cells.size)[:] = run.rows(blob, num_cells)[:, cells]

    def sort(self, blob: Raw, num_cells: int) -> None:
        """Sorts the cells by position, unless they are: llama.cpp writes them in the order of its memory."""
        positions = self.positions(blob, num_cells)
        if np.all(positions[:-1] < positions[1:]):
            return
        for run in self.runs:
            rows = run.rows(blob, num_cells)
            if run.has_entries:  # of the next section
                order = _order(rows[0])
            rows[:] = rows[:, order]


def _order(entries: Raw) -> CellNumbers:
    """Cells by position; with M-RoPE those of a picture have one, and follow each other by row and column."""
    numbers = _numbers(entries)
    if entries.shape[1] == _CELL_SIZES[0]:
        return np.argsort(numbers[:, 0], kind="stable")
    return np.lexsort((numbers[:, _COLUMN], numbers[:, _ROW], numbers[:, 0]))


def _numbers(entries: Raw) -> npt.NDArray[np.int32]:
    return np.ascontiguousarray(entries).view(np.int32)


def put(blob: Raw, offset: int, content: bytes) -> int:
    """Writes `content` at `offset`, and returns where it ends."""
    end = offset + len(content)
    blob[offset:end] = np.frombuffer(content, np.uint8)
    return end


def learn_layout(blob: Raw, end: int, section_end: int) -> Layout | None:
    """The layout of the state of a sequence whose last position is end - 1. None if it is not a known one."""
    content = bytes(blob[:section_end])
    for sections in _known_sections(content, HEADER_BYTES, end):
        return Layout(content[:HEADER_BYTES], sections)
    return None


def learn_layout_around(blob: Raw, end: int, rest: bytes, empty_rest: bytes) -> Layout | None:
    """The same where what cannot be cut, `rest`, stands behind the first section."""
    content = bytes(blob)
    for first, first_end in _candidates(content, HEADER_BYTES, end, _TENSORS_PER_LAYER):
        if content.startswith(rest, first_end):
            for second, *others in _known_sections(content, first_end + len(rest), end):
                return Layout(content[:HEADER_BYTES], (first, replace(second, before=empty_rest), *others))
    return None


def learn_window_layout(blob: Raw, end: int, bytes_per_token: int) -> Layout | None:
    """The layout of a window section, which a recurrent state may follow; a token adds `bytes_per_token` to it."""
    content = bytes(blob)
    for section, _ in _candidates(content, HEADER_BYTES, end, (2,)):
        if section.bytes_per_token == bytes_per_token:
            return Layout(content[:HEADER_BYTES], (section,))
    return None


def _known_sections(blob: bytes, offset: int, end: int) -> Iterator[tuple[Section, ...]]:
    """Ways to read the bytes from `offset` on as sections, one after the other up to the last byte."""
    for section, section_end in _candidates(blob, offset, end, (*_TENSORS_PER_LAYER, None)):
        if section_end == len(blob):
            yield (section,)
        else:
            for others in _known_sections(blob, section_end, end):
                yield (section, *others)


def _candidates(
    blob: bytes, offset: int, end: int, tensors_per_layer: tuple[int | None, ...]
) -> Iterator[tuple[Section, int]]:
    """Ways to read one section at `offset`, and where it would end."""
    for per_layer in tensors_per_layer:
        for cell_bytes in _CELL_SIZES:
            for shape_bytes in SHAPE_SIZES:
                candidate = parse_section(blob, offset, end, cell_bytes, shape_bytes, per_layer)
                if candidate is not None:
                    yield candidate


def parse_section(
    blob: bytes,
    offset: int,
    end: int,
    cell_bytes: int,
    shape_bytes: int,
    tensors_per_layer: int | None,
    num_streams: int = 1,
) -> tuple[Section, int] | None:
    """Reads a section with entries and shape of these sizes. `tensors_per_layer` None: tensors up to the blob's end.

    Of several streams only the first may have cells, and the others are not read.
    """
    if offset + _SECTION.size > len(blob):
        return None
    found_streams, num_cells = _SECTION.unpack_from(blob, offset)
    if found_streams != num_streams or not 0 < num_cells <= end:
        return None
    offset += _SECTION.size
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
    return Section(num_streams, cell_bytes, shape, tuple(tensors), tuple(row_bytes)), offset
