"""The cells of an engine as llama.cpp itself tells them, and as our mirror has them."""

import ctypes
import struct
from dataclasses import dataclass

from leftoff.engine.binding.abi import PARTIAL_ONLY
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.memory.paged import PagedMemory

ALL = -1  # llama.cpp's name for every sequence at once


@dataclass(frozen=True)
class Cell:
    position: int
    seqs: frozenset[int]


def cells_of(blob: bytes, extra_bytes: int) -> list[Cell]:
    """The held cells of llama.cpp's first section, as they lie in its memory."""
    offset = 16
    (num_cells,) = struct.unpack_from("<I", blob, 12)
    cells = []
    for _ in range(num_cells):
        position, num_seqs = struct.unpack_from("<iI", blob, offset)
        offset += 8 + extra_bytes
        cells.append(Cell(position, frozenset(struct.unpack_from(f"<{num_seqs}i", blob, offset))))
        offset += 4 * num_seqs
    return cells


def attention_cells(engine: LlamaEngine) -> list[Cell]:
    memory = engine.memory
    assert isinstance(memory, PagedMemory)
    return cells_of(_state_of_all(engine), memory._layout.sections[0].cell_bytes - 12)


def _state_of_all(engine: LlamaEngine) -> bytes:
    """Asked of llama.cpp itself: a context gives the states of single sequences only."""
    dll, handle = engine.model.library.dll, engine.context.handle
    state = ctypes.create_string_buffer(dll.llama_state_seq_get_size_ext(handle, ALL, 0))
    dll.llama_state_seq_get_data_ext(handle, ctypes.addressof(state), len(state), ALL, 0)
    return state.raw


def window_positions(engine: LlamaEngine, seq: int) -> list[int]:
    """As they lie in llama.cpp's memory."""
    memory = engine.memory
    assert isinstance(memory, PagedMemory)
    state = engine.context.get_state(seq, PARTIAL_ONLY).view.tobytes()
    return [cell.position for cell in cells_of(state, memory._layout.sections[0].cell_bytes - 12)]


def mirrored_cells(engine: LlamaEngine) -> list[Cell]:
    """The same by our own account."""
    memory = engine.memory
    assert isinstance(memory, PagedMemory)
    held: dict[int, tuple[int, set[int]]] = {}
    for seq, length in enumerate(memory._cells.lengths):
        for position in range(length):
            held.setdefault(memory._cells.cell(seq, position), (position, set()))[1].add(seq)
    return [Cell(position, frozenset(seqs)) for _, (position, seqs) in sorted(held.items())]
