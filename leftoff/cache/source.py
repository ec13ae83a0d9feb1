"""Where a tier gets what it keeps."""

import time
from typing import Protocol

from leftoff.cache.blob_store import Item
from leftoff.cache.costs import Costs
from leftoff.cache.sequences import EngineSequence
from leftoff.engine.memory.base import Memory, Page, Snapshot


class Source(Protocol):
    """Pages and snapshots of a sequence in the engine, with the bytes they will have in the tier."""

    def page_bytes(self, num_tokens: int) -> int: ...
    def snapshot_bytes(self, position: int) -> int:
        """An estimate."""
        ...

    def nbytes(self, item: Item) -> int: ...
    def page(self, sequence: EngineSequence, start: int, end: int) -> Page: ...
    def snapshot(self, sequence: EngineSequence, position: int) -> Snapshot | None:
        """None if it cannot be had."""
        ...

    def put_page(self, page: Page) -> Page | None:
        """As the tier will hold it, which has room for it now. None if it cannot be kept."""
        ...

    def put_snapshot(self, snapshot: Snapshot) -> Snapshot | None: ...


class EngineSource:
    """Copies out of the engine: for the tier in RAM."""

    def __init__(self, memory: Memory, costs: Costs) -> None:
        self._memory = memory
        self._costs = costs

    def page_bytes(self, num_tokens: int) -> int:
        return self._memory.page_bytes(num_tokens)

    def snapshot_bytes(self, position: int) -> int:
        return self._memory.snapshot_bytes(position)

    def nbytes(self, item: Item) -> int:
        return item.nbytes

    def page(self, sequence: EngineSequence, start: int, end: int) -> Page:
        began = time.perf_counter()
        page = self._memory.save_page(sequence.seq, start, end)
        self._costs.saw_save(page.nbytes, 1000 * (time.perf_counter() - began))
        return page

    def snapshot(self, sequence: EngineSequence, position: int) -> Snapshot | None:
        if position != self._memory.length(sequence.seq) or not self._memory.is_whole(sequence.seq):
            return None
        began = time.perf_counter()
        snapshot = self._memory.save_snapshot(sequence.seq)
        self._costs.saw_save(snapshot.nbytes, 1000 * (time.perf_counter() - began))
        return snapshot

    def put_page(self, page: Page) -> Page:
        return page

    def put_snapshot(self, snapshot: Snapshot) -> Snapshot:
        return snapshot
