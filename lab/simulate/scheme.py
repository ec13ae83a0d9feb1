"""What a simulation compares: ways to keep prompts, each told of one request after the other."""

from dataclasses import dataclass
from typing import Protocol

from lab.simulate.trace import Request
from leftoff.types import Tokens


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes for everything that is kept beside the sequence that runs."""

    ram_bytes: int
    disk_bytes: int = 0

    @property
    def nbytes(self) -> int:
        return self.ram_bytes + self.disk_bytes


@dataclass(frozen=True, slots=True)
class Served:
    """Where a prompt was resumed, in blocks, and what was loaded for that, or saved to make way for it."""

    resumed: int
    ram_bytes: int = 0
    disk_bytes: int = 0
    saved_bytes: int = 0


class Scheme(Protocol):
    """One cache with its budget. Belongs to one run over a trace."""

    @property
    def held_bytes(self) -> int: ...
    def serve(self, request: Request, blocks: Tokens) -> Served: ...
