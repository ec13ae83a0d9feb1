"""A memory on paper: it counts tokens and bytes and holds neither, so that only the cache's own work takes time."""

from collections.abc import Sequence
from dataclasses import dataclass

from leftoff.engine.base import MemoryKind, Page, PagePart, Share, Snapshot

_BYTES_PER_TOKEN = 20 << 10
_SNAPSHOT_BYTES = 62 << 20


@dataclass(frozen=True)
class PaperBytes:
    nbytes: int


class PaperMemory:
    """Implements `engine.base.Memory` for a hybrid model of 35B: 20 KiB per token, 62 MiB per snapshot."""

    kind = MemoryKind.HYBRID
    fingerprint = "paper"

    def __init__(self, num_sequences: int = 4, num_cells: int = 1 << 20) -> None:
        self.num_sequences = num_sequences
        self.num_cells = num_cells
        self._lengths = [0] * num_sequences

    def extend(self, seq: int, num_tokens: int) -> None:
        """What decoding does."""
        self._lengths[seq] += num_tokens

    @property
    def free_cells(self) -> int:
        return self.num_cells - sum(self._lengths)

    def length(self, seq: int) -> int:
        return self._lengths[seq]

    def is_whole(self, seq: int) -> bool:  # noqa: ARG002
        return True

    def page_bytes(self, num_tokens: int) -> int:
        return _BYTES_PER_TOKEN * num_tokens

    def snapshot_bytes(self, position: int) -> int:  # noqa: ARG002
        return _SNAPSHOT_BYTES

    def save_page(self, seq: int, start: int, end: int) -> Page:  # noqa: ARG002
        return Page(start, end, PaperBytes(self.page_bytes(end - start)))

    def save_snapshot(self, seq: int) -> Snapshot:
        return Snapshot(self._lengths[seq], PaperBytes(_SNAPSHOT_BYTES))

    def restore(
        self,
        seq: int,
        length: int,
        *,
        share: Share | None = None,  # noqa: ARG002
        pages: Sequence[PagePart] = (),  # noqa: ARG002
        snapshot: Snapshot | None = None,  # noqa: ARG002
    ) -> None:
        self._lengths[seq] = length

    def can_cut(self, seq: int, length: int) -> bool:
        return length in (0, self._lengths[seq])

    def cut(self, seq: int, length: int) -> None:
        self._lengths[seq] = length

    def fork(self, source: int, target: int, length: int) -> None:  # noqa: ARG002
        self._lengths[target] = length

    def park(self, seq: int, spare: int) -> None:
        self._lengths[spare] = self._lengths[seq]

    def drop(self, seq: int) -> None:
        self._lengths[seq] = 0
