"""The simulation's memory on paper, at the sizes of a 35B hybrid model."""

from lab.simulate import memory
from leftoff.engine.memory.base import MemoryKind


class PaperMemory(memory.PaperMemory):
    """20 KiB per token, 62 MiB per snapshot."""

    def __init__(self, num_sequences: int = 4, num_cells: int = 1 << 20) -> None:
        super().__init__(MemoryKind.HYBRID, 20 << 10, 62 << 20, num_sequences=num_sequences, num_cells=num_cells)
