"""Items on their way from disk to RAM."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from leftoff.cache.shelf import Item, Record, Shelf
from leftoff.engine.errors import BlobError


class Fetch:
    """Begun when it is made. Whoever loses interest drops it: what has come goes with it."""

    def __init__(self, shelf: Shelf, records: Sequence[Record]) -> None:
        self.nbytes = sum(record.nbytes for record in records)
        self._began = self._ended = time.perf_counter()
        self._futures: dict[Record, Future[Item]] = dict(zip(records, shelf.get(records), strict=True))
        for future in self._futures.values():
            future.add_done_callback(self._note_end)

    @property
    def is_done(self) -> bool:
        return all(future.done() for future in self._futures.values())

    def when_done(self, call: Callable[[], None]) -> None:
        """Calls once everything has come, on whichever thread brings the last of it."""
        for future in self._futures.values():
            future.add_done_callback(lambda _: call() if self.is_done else None)

    @property
    def ms(self) -> float:
        """How long it took, until the last item had come."""
        return 1000 * (self._ended - self._began)

    def has(self, records: Sequence[Record]) -> bool:
        return all(record in self._futures for record in records)

    def item(self, record: Record) -> Item | None:
        """Waits for it. None if it is lost."""
        try:
            return self._futures[record].result()
        except BlobError:
            return None

    def lost(self) -> list[Record]:
        return [record for record in self._futures if self.item(record) is None]

    def _note_end(self, _: Future[Item]) -> None:
        self._ended = time.perf_counter()
