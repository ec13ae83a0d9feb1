"""Items on their way from disk to RAM."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait

from leftoff.cache.blob_store import BlobStore, Item, Record
from leftoff.engine.errors import BlobError

PATIENCE_S = 30.0  # with a disk that brings nothing at all: a slow one brings something
GRACE_S = 1.0  # for whoever asks one that seems to hang: it may be one file only, or over


class Watch:
    """Sees whether a shelf still brings what it was asked for: the engine's thread must not hang with a disk.

    It counts from the last item that came, for whomever: what waits behind others is not late.
    """

    def __init__(self, patience_s: float = PATIENCE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience_s = patience_s
        self._awaited: set[Future[Item]] = set()
        self._last_came = clock()
        self.clock = clock

    def add(self, future: Future[Item]) -> None:
        if future.done():  # it was in memory, and says nothing of the disk
            return
        if not self._awaited:
            self._last_came = self.clock()
        self._awaited.add(future)
        future.add_done_callback(self._note)

    def left_s(self, asked: float) -> float:
        """How much longer to wait for what was asked for then, if nothing comes."""
        until = max(self._last_came + self._patience_s, asked + GRACE_S)
        return max(0.0, until - self.clock())

    def _note(self, future: Future[Item]) -> None:
        self._last_came = self.clock()
        self._awaited.discard(future)


class Fetch:
    """Begun when it is made. Whoever loses interest drops it: what has come goes with it."""

    def __init__(self, blobs: BlobStore, records: Sequence[Record], watch: Watch) -> None:
        self.nbytes = sum(record.nbytes for record in records)
        self._began = self._ended = time.perf_counter()
        self._futures: dict[Record, Future[Item]] = dict(zip(records, blobs.get(records), strict=True))
        self._watch = watch
        self._asked = watch.clock()
        for future in self._futures.values():
            watch.add(future)
            future.add_done_callback(self._note_end)

    @property
    def is_done(self) -> bool:
        """Nothing more is waited for: everything has come, or the shelf hangs."""
        return self._has_come or not self._watch.left_s(self._asked)

    def when_done(self, call: Callable[[], None]) -> None:
        """Calls once everything has come, on whichever thread brings the last of it."""
        for future in self._futures.values():
            future.add_done_callback(lambda _: call() if self._has_come else None)

    @property
    def ms(self) -> float:
        """How long it took, until the last item had come."""
        return 1000 * (self._ended - self._began)

    def has(self, records: Sequence[Record]) -> bool:
        return all(record in self._futures for record in records)

    def item(self, record: Record) -> Item | None:
        """Waits for it. None if it is lost, or does not come: then it is as good as lost."""
        future = self._futures[record]
        while not future.done() and (left_s := self._watch.left_s(self._asked)):
            wait([future], left_s)
        try:
            return future.result(0)
        except (BlobError, TimeoutError):
            return None

    def lost(self) -> list[Record]:
        return [record for record in self._futures if self.item(record) is None]

    @property
    def _has_come(self) -> bool:
        return all(future.done() for future in self._futures.values())

    def _note_end(self, _: Future[Item]) -> None:
        self._ended = time.perf_counter()
