"""An engine's memory on paper: it counts positions and bytes and holds neither. Only the cache's own work takes time.

A position may stand for a block of tokens: then a cell weighs as much as all of them, and the cache, which counts in
positions, needs no change to count in blocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from leftoff.engine.memory.base import MemoryKind, Page, PagePart, Share, Snapshot, Span, WindowPage
from leftoff.picture_tokens import Pictures


@dataclass(frozen=True, slots=True)
class PaperBytes:
    nbytes: int


class PaperMemory:
    """Implements `engine.base.Memory`. `loaded_bytes` and `saved_bytes` tell what went in and out."""

    fingerprint = "paper"
    group_bytes = step_bytes = window_tokens = 0
    is_copying = False

    def __init__(
        self, kind: MemoryKind, cell_bytes: int, fixed_snapshot_bytes: int, *, num_sequences: int, num_cells: int
    ) -> None:
        self.kind = kind
        self.num_sequences = num_sequences
        self.num_cells = num_cells
        self.loaded_bytes = self.saved_bytes = 0
        self._cell_bytes = cell_bytes
        self._snapshot = PaperBytes(fixed_snapshot_bytes)
        self._lengths = [0] * num_sequences

    def extend(self, seq: int, num_positions: int) -> None:
        """What decoding does."""
        self._lengths[seq] += num_positions

    @property
    def free_cells(self) -> int:
        return self.num_cells - sum(self._lengths)

    @property
    def is_asleep(self) -> bool:
        return False

    def length(self, seq: int) -> int:
        return self._lengths[seq]

    def is_whole(self, seq: int) -> bool:  # noqa: ARG002
        return True

    def page_bytes(self, num_tokens: int) -> int:
        return self._cell_bytes * num_tokens

    def snapshot_bytes(self, position: int, since: int = 0) -> int:  # noqa: ARG002
        return self._snapshot.nbytes

    def save_pages(self, seq: int, spans: Sequence[Span]) -> list[Page]:  # noqa: ARG002
        pages = [Page(start, end, PaperBytes(self.page_bytes(end - start))) for start, end in spans]
        self.saved_bytes += sum(page.nbytes for page in pages)
        return pages

    def save_snapshot(self, seq: int, known: Sequence[WindowPage] = ()) -> Snapshot:  # noqa: ARG002
        self.saved_bytes += self._snapshot.nbytes
        return Snapshot(self._lengths[seq], self._snapshot)

    def restore(
        self,
        seq: int,
        length: int,
        *,
        share: Share | None = None,  # noqa: ARG002
        pages: Sequence[PagePart] = (),
        snapshot: Snapshot | None = None,
        pictures: Pictures = (),  # noqa: ARG002
    ) -> None:
        self.loaded_bytes = sum(map(self._part_bytes, pages)) + (snapshot.nbytes if snapshot else 0)
        self._lengths[seq] = length

    def can_cut(self, seq: int, length: int) -> bool:
        return self.kind is MemoryKind.ATTENTION or length in (0, self._lengths[seq])

    def drop(self, seq: int) -> None:
        self._lengths[seq] = 0

    def clear(self) -> None:
        self._lengths = [0] * self.num_sequences

    def _part_bytes(self, part: PagePart) -> int:
        return self._cell_bytes * part.num_tokens
