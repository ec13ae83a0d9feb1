"""The layout of the state of a model that compresses its past: DeepSeek-V4.

Beside a sliding window, some layers keep one row per 4 tokens and others one per 128. A row never changes once its
tokens were read, so pages hold rows. What cannot be cut is the *rest*: the window, and the tokens not yet in a row.

    whole state:    header | a cell per token | window | rows | tokens not yet in a row
    partial state:  header |                  | window |      | tokens not yet in a row

    rows after n tokens, and among them those of the page [a, b):  [0 ···· a//4)[a//4 ···· b//4)[b//4 ···· n//4)

llama.cpp keeps each sequence in a stream of its own, and writes how many cells each stream has. The rest is kept with
one stream, so that its bytes depend neither on the sequence nor on the number of sequences.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from leftoff.engine.memory.arena import Raw
from leftoff.engine.memory.layout import SHAPE_SIZES, Layout, parse_section, put

_HEADER_BYTES = 20  # magic, seq | magic, version, mode: whole or partial
_COUNT = struct.Struct("<I")
_CACHE = struct.Struct("<IIII")  # version, num_rows, num_streams, num_layers
_CACHE_VERSION = 2
_TENSOR = struct.Struct("<16sQQ")  # layer, type and length of a row; num_rows, row_bytes
_CELL_BYTES = 12  # pos, num_seqs, seq
_RATIOS = (4, 128, 4)  # tokens per row: of attention of two kinds, and of the indexer of the first


@dataclass(frozen=True)
class RowCache:
    """The rows of all layers that compress `ratio` tokens into one."""

    ratio: int
    tensors: tuple[bytes, ...]  # the bytes before the number of rows
    row_bytes: tuple[int, ...]

    def nbytes(self, num_rows: int) -> int:
        return _CACHE.size + _TENSOR.size * len(self.tensors) + num_rows * sum(self.row_bytes)


@dataclass(frozen=True)
class Rows:
    """The rows of one tensor from that of token `start` on, in a page or a state."""

    ratio: int
    start: int
    matrix: Raw

    def copy(self, source: "Rows", start: int, end: int) -> None:
        """Copies the rows of tokens [start, end)."""
        np.copyto(self._of(start, end), source._of(start, end))

    def _of(self, start: int, end: int) -> Raw:
        first = self.start // self.ratio
        return self.matrix[start // self.ratio - first : end // self.ratio - first]


def copy_rows(target: Sequence[Rows], source: Sequence[Rows], start: int, end: int) -> None:
    """Copies the rows of tokens [start, end) of every tensor."""
    for rows, found in zip(target, source, strict=True):
        rows.copy(found, start, end)


@dataclass(frozen=True)
class CompressedLayout:
    """The state of one sequence in a context with `num_streams` sequences, after any number of tokens."""

    header: bytes  # of a whole state
    num_streams: int
    cell_shape: bytes  # follows the cells
    kept: Layout  # of the window in a rest that is kept
    caches: tuple[RowCache, ...]

    # --- pages: rows only, as many in every page of one length: the last may be unused

    def page_bytes(self, num_tokens: int) -> int:
        return sum(-(-num_tokens // cache.ratio) * sum(cache.row_bytes) for cache in self.caches)

    def page_rows(self, page: Raw, start: int, end: int) -> list[Rows]:
        found, offset = [], 0
        for cache in self.caches:
            num_rows = -(-(end - start) // cache.ratio)
            for width in cache.row_bytes:
                found.append(_rows(page, offset, cache.ratio, start, num_rows, width))
                offset += num_rows * width
        return found

    def cut_out(self, rows: Sequence[Rows], start: int, end: int, page: Raw) -> None:
        """Writes the page [start, end), from the rows of a state."""
        page[:] = 0
        copy_rows(self.page_rows(page, start, end), rows, start, end)

    # --- whole states

    def rows(self, state: Raw, seq: int) -> list[Rows]:
        """The rows of a state that llama.cpp has written."""
        num_cells = _count(state, self._stream_start(_HEADER_BYTES, seq))
        offset = _HEADER_BYTES + self._cells_bytes(num_cells)
        offset += self._window_bytes(_count(state, self._stream_start(offset, seq)))
        found = []
        for cache in self.caches:
            num_rows = _count(state, offset + _COUNT.size)
            found += self._cache_rows(state, offset, cache, num_rows)
            offset += cache.nbytes(num_rows)
        return found

    def whole_bytes(self, length: int, rest: Raw) -> int:
        caches = sum(cache.nbytes(length // cache.ratio) for cache in self.caches)
        return rest.nbytes + len(self._other_streams) + self._cells_bytes(length) + caches

    def write_whole(self, state: Raw, length: int, rest: Raw) -> list[Rows]:
        """Writes a state for llama.cpp, all but its rows. Returns these, to be filled."""
        window, pending = self._split(rest)
        offset = self._put_streams(state, put(state, 0, self.header), self._cells(length))
        offset = self._put_streams(state, offset, window)
        found = []
        for cache in self.caches:
            num_rows = length // cache.ratio
            found += self._cache_rows(state, offset, cache, num_rows)
            offset = put(state, offset, _CACHE.pack(_CACHE_VERSION, num_rows, 1, len(cache.tensors)))
            for tensor, width in zip(cache.tensors, cache.row_bytes, strict=True):
                offset = put(state, offset, _TENSOR.pack(tensor, num_rows, width)) + num_rows * width
        state[offset:] = pending
        return found

    # --- the rest: as llama.cpp writes it, and as it is kept

    def rest_bytes(self, partial: Raw) -> int:
        return partial.nbytes - len(self._other_streams)

    def write_rest(self, partial: Raw, seq: int, rest: Raw) -> None:
        """Writes the rest from a partial state that llama.cpp has written."""
        stream = self._stream_start(_HEADER_BYTES, seq)
        num_cells = _count(partial, stream)
        start = put(rest, 0, self.kept.header + _COUNT.pack(1))
        end = self.kept.section_end(num_cells)
        rest[start:end] = partial[stream : stream + end - start]
        rest[end:] = partial[_HEADER_BYTES + self._window_bytes(num_cells) :]
        self.kept.forget_sequence(rest, num_cells)
        self.kept.sort(rest, num_cells)

    def partial_bytes(self, rest: Raw) -> int:
        return rest.nbytes + len(self._other_streams)

    def write_partial(self, rest: Raw, partial: Raw) -> None:
        """Writes a partial state for llama.cpp."""
        window, pending = self._split(rest)
        partial[self._put_streams(partial, put(partial, 0, self.kept.header), window) :] = pending

    def _split(self, rest: Raw) -> tuple[Raw, Raw]:
        """The stream of the window, and the tokens not yet in a row."""
        end = self.kept.section_end(self.kept.count(rest))
        return rest[_HEADER_BYTES + _COUNT.size : end], rest[end:]

    # --- streams: their number, then of each the number of its cells and, if there are any, the cells

    @cached_property
    def _other_streams(self) -> bytes:
        return bytes(_COUNT.size * (self.num_streams - 1))

    def _stream_start(self, offset: int, seq: int) -> int:
        return offset + _COUNT.size * (1 + seq)

    def _put_streams(self, state: Raw, offset: int, stream: Raw) -> int:
        """llama.cpp reads the one stream that has cells into any sequence."""
        start = put(state, offset, _COUNT.pack(self.num_streams))
        state[start : start + stream.nbytes] = stream
        return put(state, start + stream.nbytes, self._other_streams)

    def _cells(self, length: int) -> Raw:
        if length == 0:
            return _raw(_COUNT.pack(0))
        entries = np.zeros((length, 3), np.int32)
        entries[:, 0], entries[:, 1] = np.arange(length), 1
        return np.concatenate([_raw(_COUNT.pack(length)), entries.view(np.uint8).ravel(), _raw(self.cell_shape)])

    def _cells_bytes(self, num_cells: int) -> int:
        shape_bytes = len(self.cell_shape) if num_cells else 0
        return _COUNT.size * (1 + self.num_streams) + num_cells * _CELL_BYTES + shape_bytes

    def _window_bytes(self, num_cells: int) -> int:
        return self.kept.sections[0].nbytes(num_cells) + len(self._other_streams)

    def _cache_rows(self, state: Raw, offset: int, cache: RowCache, num_rows: int) -> list[Rows]:
        found = []
        offset += _CACHE.size
        for width in cache.row_bytes:
            offset += _TENSOR.size
            found.append(_rows(state, offset, cache.ratio, 0, num_rows, width))
            offset += num_rows * width
        return found


def _rows(blob: Raw, offset: int, ratio: int, start: int, num_rows: int, width: int) -> Rows:
    return Rows(ratio, start, blob[offset : offset + num_rows * width].reshape(num_rows, width))


def _count(blob: Raw, offset: int) -> int:
    num: int = _COUNT.unpack(blob[offset : offset + _COUNT.size].tobytes())[0]
    return num


def _raw(content: bytes) -> Raw:
    return np.frombuffer(content, np.uint8)


def learn_compressed_layout(whole: Raw, partial: Raw, length: int) -> CompressedLayout | None:
    """The layout, from both states of sequence 0 after so few tokens that all are in the window. None if unknown."""
    content, tail = whole.tobytes(), partial.tobytes()
    for shape_bytes in SHAPE_SIZES:
        try:
            layout = _learn(content, tail, length, shape_bytes)
        except (struct.error, IndexError):  # it ends too soon
            continue
        if layout is not None:
            return layout
    return None


def _learn(whole: bytes, partial: bytes, length: int, shape_bytes: int) -> CompressedLayout | None:
    (num_streams,) = _COUNT.unpack_from(whole, _HEADER_BYTES)
    streams_bytes = _COUNT.size * (num_streams - 1)
    cells = parse_section(whole, _HEADER_BYTES, length, _CELL_BYTES, shape_bytes, 1, num_streams)
    if cells is None or cells[0].tensors:
        return None
    window_start = cells[1] + streams_bytes
    window = parse_section(whole, window_start, length, _CELL_BYTES, shape_bytes, 1, num_streams)
    if window is None:
        return None
    offset = window_end = window[1] + streams_bytes
    caches = []
    for ratio in _RATIOS:
        cache = _learn_cache(whole, offset, ratio, length // ratio)
        if cache is None:
            return None
        caches.append(cache)
        offset += cache.nbytes(length // ratio)
    if whole[offset:] != partial[_HEADER_BYTES + window_end - window_start :]:
        return None
    kept = Layout(partial[:_HEADER_BYTES], (replace(window[0], num_streams=1),))
    return CompressedLayout(whole[:_HEADER_BYTES], num_streams, cells[0].shape, kept, tuple(caches))


def _learn_cache(whole: bytes, offset: int, ratio: int, num_rows: int) -> RowCache | None:
    version, found_rows, num_streams, num_layers = _CACHE.unpack_from(whole, offset)
    if (version, found_rows, num_streams) != (_CACHE_VERSION, num_rows, 1):
        return None
    offset += _CACHE.size
    tensors, row_bytes = [], []
    for _ in range(num_layers):
        tensor, found_rows, width = _TENSOR.unpack_from(whole, offset)
        if found_rows != num_rows:
            return None
        tensors.append(tensor)
        row_bytes.append(width)
        offset += _TENSOR.size + num_rows * width
    return RowCache(ratio, tuple(tensors), tuple(row_bytes))
