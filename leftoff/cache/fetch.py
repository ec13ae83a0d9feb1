"""Brings what a prompt needs from below RAM, by other threads, while the engine serves other requests."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import NamedTuple

from leftoff.cache.blob_store import BlobStore, Item, Record, StoredPath
from leftoff.engine.errors import BlobError

PATIENCE_S = 30.0  # with a disk that delivers nothing at all: a slow one delivers something
SHARED_PATIENCE_S = 5.0  # with a medium that machines share
GRACE_S = 1.0  # for a new fetch from a disk that seems to hang: it may be one file only, or over


class Watch:
    """Notices when a blob store delivers nothing any more: the engine's thread must not hang with a disk.

    Time counts from the last item that arrived for any fetch, so one that queues behind others is not late. With
    `is_bounded`, also a blob store that delivers something now and then has only as long as the fetch spares prefill,
    and the patience.
    """

    def __init__(
        self,
        patience_s: float = PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
        *,
        grace_s: float = GRACE_S,
        is_bounded: bool = False,
    ) -> None:
        self._patience_s = patience_s
        self._grace_s = grace_s
        self._is_bounded = is_bounded
        self._awaited: set[Future[Item]] = set()
        self._last_arrival = clock()
        self.clock = clock

    def add(self, future: Future[Item]) -> None:
        """Waits for its item from now on."""
        if future.done():  # it was still in memory, and says nothing about the disk
            return
        if not self._awaited:
            self._last_arrival = self.clock()
        self._awaited.add(future)
        future.add_done_callback(self._note)

    def left_s(self, asked: float, spared_s: float) -> float:
        """How much longer a fetch begun at `asked` waits, if nothing arrives. It spares so much prefill."""
        until = max(self._last_arrival + self._patience_s, asked + self._grace_s)
        if self._is_bounded:
            until = min(until, asked + self._patience_s + spared_s)
        return max(0.0, until - self.clock())

    def _note(self, future: Future[Item]) -> None:
        self._last_arrival = self.clock()
        self._awaited.discard(future)


class Fetch:
    """Records of one blob store being read into RAM. Reading starts at once; the items live as long as this object."""

    def __init__(self, blobs: BlobStore, records: Sequence[Record], watch: Watch, spared_s: float) -> None:
        """`spared_s` is how long it would take to prefill what it brings."""
        self._asked = self._ended = watch.clock()
        self.records = records
        self._futures: dict[Record, Future[Item]] = dict(zip(records, blobs.get(records), strict=True))
        self._blobs = blobs
        # for the measured rate: what was still waiting to be written has come from memory
        self._awaited_bytes = sum(record.nbytes for record, future in self._futures.items() if not future.done())
        self._watch = watch
        self._spared_s = spared_s
        for future in self._futures.values():
            watch.add(future)
            future.add_done_callback(self._note_end)

    @property
    def is_done(self) -> bool:
        """Everything has arrived, or the blob store hangs and is not waited for."""
        return self._has_arrived or not self._left_s

    def when_done(self, call: Callable[[], None]) -> None:
        """Calls back when everything has arrived, on the thread that read the last item."""
        for future in self._futures.values():
            future.add_done_callback(lambda _: call() if self._has_arrived else None)

    def measure(self) -> None:
        """Tells the costs of the tier how long it took until the last item arrived."""
        self._blobs.costs.saw_fetch(self._awaited_bytes, 1000 * (self._ended - self._asked), len(self._futures))

    def item(self, record: Record) -> Item | None:
        """Waits for one item. None if it is lost, or the blob store hangs."""
        future = self._futures[record]
        while not future.done() and (left_s := self._left_s):
            with suppress(BlobError, TimeoutError):
                future.result(left_s)
        try:
            return future.result(0)
        except (BlobError, TimeoutError):
            return None

    @property
    def _left_s(self) -> float:
        return self._watch.left_s(self._asked, self._spared_s)

    @property
    def _has_arrived(self) -> bool:
        return all(future.done() for future in self._futures.values())

    def _note_end(self, _: Future[Item]) -> None:
        self._ended = self._watch.clock()


class Search(NamedTuple):
    """The answer to come from a medium that machines share, and the tier that takes it."""

    answer: "Future[StoredPath | None]"
    add_found: Callable[[StoredPath | None], None]


class Fetches:
    """All that a prompt needs from below RAM: one fetch from each tier."""

    def __init__(self, parts: Sequence[Fetch]) -> None:
        self._parts = parts
        self._part_of = {record: part for part in parts for record in part.records}

    @property
    def is_done(self) -> bool:
        return all(part.is_done for part in self._parts)

    def when_done(self, call: Callable[[], None]) -> None:
        for part in self._parts:
            part.when_done(call)

    def has(self, records: Sequence[Record]) -> bool:
        """Whether all of these records are part of the fetch."""
        return all(record in self._part_of for record in records)

    def item(self, record: Record) -> Item | None:
        """Waits for one item. None if it is lost, or its blob store hangs."""
        return self._part_of[record].item(record)

    def lost(self) -> list[Record]:
        """The records that did not arrive."""
        return [record for record in self._part_of if self.item(record) is None]

    def measure(self) -> None:
        for part in self._parts:
            part.measure()


class Preparation:
    """A prompt on its way up from the tiers below RAM: looked up where machines share a medium, and then fetched.

    The other threads only read. What they have found is put into the trees by `proceed`, on the engine's thread.
    """

    def __init__(
        self,
        searches: Sequence[Search],
        fetch: Callable[[], Fetches | None],
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """`wake` is called, on any thread, whenever there is something to proceed with."""
        self._searches = searches
        self._begin_fetch = fetch
        self._wake = wake
        self._is_found = False  # the searches have ended, and what they found is in the trees
        self.fetch: Fetches | None = None
        for search in searches:
            search.answer.add_done_callback(lambda _: wake())
        self.proceed()

    @property
    def has_work(self) -> bool:
        """Something is looked up or fetched for it."""
        return bool(self._searches) or self.fetch is not None

    @property
    def is_waiting(self) -> bool:
        if not self._is_found:
            return not all(search.answer.done() for search in self._searches)
        return self.fetch is not None and not self.fetch.is_done

    def proceed(self) -> None:
        """Starts to fetch, once everything has been looked up."""
        if self._is_found or self.is_waiting:
            return
        for search in self._searches:
            search.add_found(search.answer.result())
        self._is_found = True
        self.fetch = self._begin_fetch()
        if self.fetch is not None:
            self.fetch.when_done(self._wake)
