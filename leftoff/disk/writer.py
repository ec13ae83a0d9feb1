"""Write-behind: one thread owns the folder of a model and works off removals, then a queue of writes, by their rank.

- A blob that is removed while it is queued is never written.
- A queue that is full gives up what has the lowest rank, and the disk tier is told that it is lost.
- Where cores are few, the thread waits while the engine is busy; now and then it writes a batch all the same.
- A write that fails is given up at once: its memory is freed, and the disk tier is told that the blob is lost. Then the
  writer is paused and takes nothing, until the folder can be opened again and is reconciled with the entry table.
"""

import logging
import math
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from leftoff.cache.blob_store import Rank
from leftoff.cache.wear import DAY_S, RecentBytes
from leftoff.disk import clock
from leftoff.disk.entries import Entry, EntryTable
from leftoff.disk.errors import PROBLEMS, DamagedIndexError, describe
from leftoff.disk.folder import ModelFolder
from leftoff.disk.index import BlobHits
from leftoff.disk.queue import WriteQueue

logger = logging.getLogger("leftoff.disk")

_BATCH_BYTES = 256 << 20  # of one transaction
_SMALL_BATCH_BYTES = 64 << 20  # where the engine needs the cores that write it
_BATCH_ITEMS = 64
_RATED_BYTES = 8 << 20  # a smaller batch says little about the disk's rate
_REMOVALS_PER_CLEANING = 256
_IDLE_S = 0.25  # the next request often follows at once
_GATHER_S = 0.02  # what belongs together is put one by one, and is written in one batch
_JOIN_S = 1.0  # to end a batch that was begun


@dataclass(frozen=True)
class WriteBatch:
    """Removals and writes done together. A name in both was stored before, and is to be written again."""

    removals: list[str] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        return sum(entry.blob.file_bytes for entry in self.entries)


class Writer:
    """Methods may be called from any thread, and return quickly but for `flush` and `stop`."""

    def __init__(
        self,
        folder: ModelFolder,
        table: EntryTable,
        *,
        queue_bytes: int,
        retry_s: float,
        gives_way: bool = True,
        daily_bytes: int | None = None,
    ) -> None:
        """With `gives_way`, it writes little while the engine is busy: both need the same cores.

        In no 24 hours does it write more than `daily_bytes`, whatever process began them.
        """
        self._folder = folder
        self._table = table
        self._queue_bytes = queue_bytes
        self._retry_s = retry_s
        self._gives_way = gives_way
        self._batch_bytes = _SMALL_BATCH_BYTES if gives_way else _BATCH_BYTES
        self._daily_bytes = daily_bytes
        self._of_the_day = RecentBytes.parse(folder.written_lately, DAY_S)
        self.written_bytes = 0  # since the start
        self.bytes_per_ms: float | None = None  # of the last large batch, synced
        self._queue: WriteQueue[Entry] = WriteQueue()
        self._removals: dict[str, None] = {}  # names, as an ordered set
        self._in_hand_bytes = 0  # bytes of the batch that is being written
        self._hits: dict[str, BlobHits] = {}
        self._changed = threading.Condition()
        self._is_working = self._is_stopped = False
        self._is_paused = self._is_damaged = False  # after a problem with the disk, or with the index
        self._engine_is_busy = False
        self._idle_since = 0.0
        self._num_flushing = 0
        self._reported = ""  # the problem that was logged last, until all is well again
        self._needed_bytes = 0  # of the batch that failed last
        self._num_removed = 0
        self._next_chores = 0.0
        self._thread = threading.Thread(target=self._run, name="leftoff-disk", daemon=True)

    def start(self, problem: Exception | None = None) -> None:
        """Starts the thread; paused if opening the folder had a problem."""
        if problem is not None:
            self._pause(problem)
        self._thread.start()

    # --- called from other threads

    def has_room(self, nbytes: int, rank: Rank) -> bool:
        """Whether `put` would take this much. An item larger than the whole queue is taken when the queue is empty."""
        with self._changed:
            kept_bytes = self._waiting_bytes - self._queue.bytes_below(rank)
            fits = not kept_bytes or kept_bytes + nbytes <= self._queue_bytes
            fits &= self._day_left_bytes >= nbytes
            return fits and not self._is_paused and not self._is_stopped

    @property
    def num_waiting(self) -> int:
        return len(self._queue)

    @property
    def day_left_bytes(self) -> float:
        """How many bytes more may be put today, beside those that wait."""
        with self._changed:
            return self._day_left_bytes

    @property
    def _day_left_bytes(self) -> float:
        if self._daily_bytes is None:
            return math.inf
        return self._daily_bytes - self._of_the_day.total(clock.now()) - self._waiting_bytes

    def put(self, entry: Entry, rank: Rank) -> None:
        with self._changed:
            if self._is_paused or self._is_stopped:
                self._table.lose([entry])
                return
            excess_bytes = self._waiting_bytes + entry.blob.file_bytes - self._queue_bytes
            if given_up := self._queue.give_up(excess_bytes, rank):
                self._table.lose(given_up)
            self._queue.put(entry, rank)
            self._notify_if_due()

    def promote(self, entries: Iterable[Entry], rank: Rank) -> None:
        with self._changed:
            for entry in entries:
                self._queue.promote(entry, rank)

    def remove(self, entries: Sequence[Entry]) -> None:
        """Removes entries that the table has dropped, and leaves alone others of the same name that were put since."""
        with self._changed:
            for entry in entries:
                if entry in self._queue:
                    self._queue.remove(entry)
                else:
                    self._removals[entry.name] = None
            self._notify_if_due()

    def hold_back(self, *, is_busy: bool) -> None:
        if is_busy == self._engine_is_busy or not self._gives_way:
            return
        with self._changed:
            self._engine_is_busy = is_busy
            self._idle_since = time.monotonic()
            self._changed.notify_all()

    def count_hits(self, names: Iterable[str]) -> None:
        """Counts a hit of each blob; written to the index with the next chores."""
        now = clock.now()
        with self._changed:
            for name in names:
                before = self._hits.get(name)
                self._hits[name] = BlobHits(now, before.hits + 1 if before else 1)

    def flush(self, timeout_s: float) -> bool:
        """Waits until the queue is written; False if that takes longer."""
        with self._changed:
            self._num_flushing += 1
            self._changed.notify_all()
            try:
                return self._changed.wait_for(lambda: not self._is_working and not self._has_work(), timeout_s)
            finally:
                self._num_flushing -= 1

    def stop(self, timeout_s: float) -> None:
        """Writes for at most `timeout_s`, gives up the rest, and closes the folder."""
        deadline = time.monotonic() + timeout_s
        self.flush(timeout_s)
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        self._thread.join(max(_JOIN_S, deadline - time.monotonic()))

    # --- the thread

    def _run(self) -> None:
        while (batch := self._next_batch()) is not None:
            try:
                self._work(batch)
            except Exception as problem:  # the thread must live: without it the disk tier would silently stop
                self._pause(problem, batch)
            finally:
                self._end()
        self._finish()

    def _work(self, batch: WriteBatch) -> None:
        if self._is_paused:
            self._resume()
        removals = [name for name in batch.removals if not self._table.has_file(name)]  # else it was written again
        if removals:
            self._folder.remove(removals)
            self._num_removed += len(removals)
        entries = [entry for entry in batch.entries if self._table.holds(entry)]
        if entries:
            self._write(entries)
        if time.monotonic() >= self._next_chores:
            self._do_chores()

    def _write(self, entries: Sequence[Entry]) -> None:
        began, nbytes = time.perf_counter(), sum(entry.blob.file_bytes for entry in entries)
        self.written_bytes += nbytes
        with self._changed:
            self._of_the_day.add(nbytes, clock.now())
        self._folder.add([entry.write for entry in entries if entry.write is not None], self._of_the_day.text)
        self._table.mark_written(entries)
        if nbytes >= _RATED_BYTES:
            self.bytes_per_ms = nbytes / (1000 * (time.perf_counter() - began))
        if self._reported:
            logger.warning("the cache in %s is written again", self._folder.path)
            self._reported = ""

    def _do_chores(self) -> None:
        """Writes hits, and after many removals cleans the index."""
        self._next_chores = time.monotonic() + self._retry_s
        with self._changed:
            hits, self._hits = self._hits, {}
        if hits:
            self._folder.index.note(hits)
        if self._num_removed >= (1 if self._is_stopped else _REMOVALS_PER_CLEANING):
            self._num_removed = 0
            self._folder.index.drop_unreachable_runs()

    def _pause(self, problem: Exception, batch: WriteBatch | None = None) -> None:
        """Gives up the batch and the queue, and takes nothing until `_resume` succeeds."""
        batch = batch or WriteBatch()
        self._is_damaged |= isinstance(problem, DamagedIndexError)
        self._needed_bytes = min(self._batch_bytes, batch.nbytes)
        self._folder.close_index()
        with self._changed:
            self._is_paused = True
            self._table.lose([*batch.entries, *self._queue])
            self._queue.clear()
        self._report(problem)

    def _report(self, problem: Exception) -> None:
        """Logs a problem once, and again only if it changes or comes back after all was well."""
        message = describe(problem, self._folder.path)
        if message != self._reported:
            mistake = None if isinstance(problem, PROBLEMS) else problem  # a defect of ours, not of the disk
            logger.warning("nothing is written to disk: %s", message, exc_info=mistake)
        self._reported = message

    def _resume(self) -> None:
        self._folder.open(anew=self._is_damaged)
        missing = self._folder.reconcile(self._table.written_names())
        self._table.lose(self._table.find_all(missing))
        self._folder.files.check_room(self._needed_bytes)
        self._is_damaged = False
        with self._changed:
            self._is_paused = False

    def _next_batch(self) -> WriteBatch | None:
        """The next batch, empty if only chores or a retry are due; None once stopped."""
        with self._changed:
            self._wait_for_work()
            if self._is_stopped:
                return None
            batch = WriteBatch([*self._removals])
            self._removals.clear()
            while self._queue and len(batch.entries) < _BATCH_ITEMS and self._in_hand_bytes < self._batch_bytes:
                entry = self._queue.pop()
                batch.entries.append(entry)
                self._in_hand_bytes += entry.blob.file_bytes
            self._is_working = True
            return batch

    def _wait_for_work(self) -> None:
        """Until there is work and the engine was idle for a moment, but no longer than `retry_s`."""
        deadline = time.monotonic() + self._retry_s
        while (left := deadline - time.monotonic()) > 0:
            self._changed.wait_for(lambda: self._is_stopped or self._is_due(), left)
            rest_s = self._idle_since + _IDLE_S - time.monotonic()
            if self._queue.nbytes < self._batch_bytes:
                rest_s = max(_GATHER_S, rest_s)
            if self._is_urgent() or rest_s <= 0 or not self._changed.wait_for(self._idle_is_over, rest_s):
                return

    def _idle_is_over(self) -> bool:
        return self._engine_is_busy or self._is_urgent()

    def _notify_if_due(self) -> None:
        if self._is_due():
            self._changed.notify_all()

    def _is_due(self) -> bool:
        """Whether there is work, and the engine idle or the work urgent."""
        return self._has_work() and (self._is_urgent() or not self._engine_is_busy)

    def _is_urgent(self) -> bool:
        return self._is_stopped or self._num_flushing > 0 or self._waiting_bytes >= self._queue_bytes // 2

    @property
    def _waiting_bytes(self) -> int:
        return self._queue.nbytes + self._in_hand_bytes

    def _has_work(self) -> bool:
        return bool(self._queue or self._removals) and not self._is_paused

    def _end(self) -> None:
        with self._changed:
            self._in_hand_bytes = 0
            self._is_working = False
            self._changed.notify_all()

    def _finish(self) -> None:
        try:
            if not self._is_paused:
                self._next_chores = 0.0
                self._do_chores()
        except PROBLEMS as problem:
            self._report(problem)
        self._folder.close()
