"""Write-behind: one thread works off removals and deletions, then a queue of writes, by their rank.

- A blob that is released while it is queued is never written.
- A queue that is full gives up what has the lowest rank, and the tier is told that it is lost.
- Where cores are few, the thread waits while the engine is busy; now and then it writes a batch all the same.
- After a write that fails the writer is paused, until the medium has recovered. On a medium of this machine alone all
  that waits is given up at once: its memory is freed, the tier is told, and nothing is taken meanwhile. Where machines
  share the medium, others count on what waits: it is kept, and tried again.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from leftoff.blobs import clock
from leftoff.blobs.blob import Blob
from leftoff.blobs.entries import Entry, EntryTable
from leftoff.blobs.medium import Deletion, Medium, Use
from leftoff.blobs.queue import WriteQueue
from leftoff.blobs.threads import THREADS, Threads
from leftoff.cache.blob_store import Rank

logger = logging.getLogger("leftoff.blobs")

_BATCH_ITEMS = 64
_IDLE_S = 0.25  # the next request often follows at once
_GATHER_S = 0.02  # what belongs together is put one by one, and is written in one batch
_JOIN_S = 1.0  # to end a batch that was begun
_MAX_TRIES = 20  # of one blob, while others are written: it may be too large for the medium


@dataclass(frozen=True)
class WriteBatch:
    """Removals and writes done together. A name in both was stored before, and is to be written again."""

    removals: list[Blob] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    clearings: list[Deletion] = field(default_factory=list)


class QueueLimit:
    """How many bytes may wait to be written, in the queues of all models: RAM cannot free them."""

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes
        self._writers: tuple[Writer, ...] = ()
        self._lock = threading.Lock()

    def count(self, writer: "Writer", *, is_open: bool) -> None:
        """Counts what waits there, until it is closed."""
        with self._lock:
            others = tuple(other for other in self._writers if other is not writer)
            self._writers = (*others, writer) if is_open else others

    def bytes_for(self, writer: "Writer") -> int:
        """The bytes of the limit that other writers leave to this one. An empty queue takes any item all the same."""
        return self._nbytes - sum(other.waiting_bytes for other in self._writers if other is not writer)


class Writer:
    """Methods may be called from any thread, and return quickly but for `flush` and `stop`."""

    def __init__(
        self,
        medium: Medium,
        table: EntryTable,
        *,
        queue_bytes: int | QueueLimit,
        batch_bytes: int,
        retry_s: float,
        gives_way: bool,
        is_shared: bool,
        threads: Threads = THREADS,
    ) -> None:
        """With `gives_way`, it writes little while the engine is busy: both need the same cores."""
        self._medium = medium
        self._table = table
        self._limit = QueueLimit(queue_bytes) if isinstance(queue_bytes, int) else queue_bytes
        self._batch_bytes = batch_bytes
        self._retry_s = retry_s
        self._gives_way = gives_way
        self._is_shared = is_shared
        self.written_bytes = 0  # since the start
        self._num_written = 0
        self._queue = WriteQueue()
        self._removals: dict[str, Blob] = {}
        self._clearings: list[Deletion] = []
        self._in_hand: list[Entry] = []  # of the batch that is being written
        self._in_hand_bytes = 0
        self._uses: dict[str, Use] = {}
        self._changed = threads.condition()
        self._is_working = self._is_stopped = False
        self._is_paused = False  # after a problem
        self._is_in_doubt = False  # nothing was written since
        self._engine_is_busy = False
        self._idle_since = 0.0
        self._num_flushing = 0
        self._next_chores = 0.0
        self._threads = threads
        self._thread: threading.Thread | None = None

    def start(self, problem: Exception | None = None) -> None:
        """Starts the thread; paused if opening the medium had a problem."""
        if problem is not None:
            self._pause(problem, WriteBatch())
        self._limit.count(self, is_open=True)
        self._thread = self._threads.start(self._run, "leftoff-writer")

    # --- called from other threads

    def has_room(self, nbytes: int, rank: Rank) -> bool:
        """Whether `put` would take this much. An item larger than the whole queue is taken when the queue is empty."""
        with self._changed:
            kept_bytes = self.waiting_bytes - self._queue.bytes_below(rank)
            fits = not kept_bytes or kept_bytes + nbytes <= self._queue_bytes
            fits &= self._medium.left_bytes - self.waiting_bytes >= nbytes
            return fits and self._takes_writes

    @property
    def left_bytes(self) -> float:
        """How many bytes more may be put today, beside those that wait."""
        with self._changed:
            return self._medium.left_bytes - self.waiting_bytes

    @property
    def num_waiting(self) -> int:
        return len(self._queue) + len(self._in_hand)

    def put(self, entry: Entry, rank: Rank) -> None:
        with self._changed:
            if not self._takes_writes:
                self._table.lose([entry])
                return
            excess_bytes = self.waiting_bytes + entry.nbytes - self._queue_bytes
            if given_up := self._queue.give_up(excess_bytes, rank):
                self._table.lose(given_up)
            entry.worth = rank.worth
            self._queue.put(entry, rank)
            self._notify_if_due()

    def promote(self, entries: Iterable[Entry], rank: Rank) -> None:
        """Raises the rank of those that wait. A medium that machines share is told that the others are of use."""
        with self._changed:
            for entry in entries:
                entry.worth = max(entry.worth, rank.worth)
                if entry.write is not None:
                    self._queue.promote(entry, rank)
                elif self._is_shared:
                    self._note_use(entry, num_hits=0)

    def count_hits(self, entries: Iterable[Entry]) -> None:
        """Counts a hit of each blob; the medium is told with the next chores."""
        with self._changed:
            for entry in entries:
                self._note_use(entry, num_hits=1)

    def _note_use(self, entry: Entry, num_hits: int) -> None:
        if (before := self._uses.get(entry.name)) is not None:
            num_hits += before.num_hits
        self._uses[entry.name] = Use(entry.blob, entry.worth, clock.now(), num_hits)

    def release(self, entries: Sequence[Entry]) -> None:
        """Gives up entries that the table has dropped: those that still wait are not written.

        The others are removed from the medium, also those of the batch in hand, unless machines share it.
        """
        with self._changed:
            for entry in entries:
                if entry in self._queue:
                    self._queue.remove(entry)
                elif not self._is_shared:
                    self._removals[entry.name] = entry.blob
            self._notify_if_due()

    def remove(self, entries: Sequence[Entry]) -> None:
        """Removes entries that the table has dropped, and leaves alone others of the same name that were put since."""
        self.release(entries)
        with self._changed:
            self._removals |= {entry.name: entry.blob for entry in entries}
            self._notify_if_due()

    def clear(self, is_meant: Callable[[str], bool]) -> "Future[None]":
        """Deletes namespaces from the medium after the batch in hand, and before anything that is put from now on."""
        done: Future[None] = Future()
        with self._changed:
            self._clearings.append(Deletion(is_meant, done))
            self._changed.notify_all()
            if self._is_stopped:
                done.cancel()
        return done

    def hold_back(self, *, is_busy: bool) -> None:
        if is_busy == self._engine_is_busy or not self._gives_way:
            return
        with self._changed:
            self._engine_is_busy = is_busy
            self._idle_since = self._threads.clock()
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Waits until the queue is written; False if that takes longer, or the medium fails."""
        with self._changed:
            self._num_flushing += 1
            self._changed.notify_all()
            try:
                self._changed.wait_for(lambda: not self._is_working and not self._has_work(), timeout_s)
                return not self._is_working and not self._queue and not self._has_work()
            finally:
                self._num_flushing -= 1

    def stop(self, timeout_s: float) -> None:
        """Writes for at most `timeout_s`, gives up the rest, and closes the medium."""
        deadline = self._threads.clock() + timeout_s
        self.flush(timeout_s)
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        assert self._thread is not None
        self._thread.join(max(_JOIN_S, deadline - self._threads.clock()))

    # --- the thread

    def _run(self) -> None:
        while (batch := self._next_batch()) is not None:
            try:
                self._work(batch)
            except Exception as problem:  # the thread must live: without it the tier would silently stop
                self._pause(problem, batch)
            finally:
                self._end()
        self._finish()

    def _work(self, batch: WriteBatch) -> None:
        if self._is_paused:
            self._table.lose_names(self._medium.recover(self._table.written_names()))
        removals = [blob for blob in batch.removals if not self._table.is_written(blob.name)]  # else it was put again
        if removals:
            self._medium.remove(removals)
        for clearing in batch.clearings:
            self._medium.clear(clearing.is_meant)
            clearing.done.set_result(None)
        if self._is_paused:  # after the deletions: they need no room, and make some
            self._resume()
        entries = [entry for entry in batch.entries if self._table.holds(entry)]
        if entries:
            self._write(entries)
        if self._threads.clock() >= self._next_chores:
            self._do_chores()

    def _write(self, entries: Sequence[Entry]) -> None:
        self.written_bytes += self._medium.write(
            [replace(entry.write, worth=entry.worth) for entry in entries if entry.write is not None]
        )
        for entry in entries:
            entry.write = None
        self._num_written += len(entries)
        self._is_in_doubt = False

    def _do_chores(self) -> None:
        """Tells the medium what was used."""
        self._next_chores = self._threads.clock() + self._retry_s
        with self._changed:
            uses, self._uses = self._uses, {}
        gone = self._medium.note([*uses.values()])
        self._table.lose_names([blob.name for blob in gone])

    def _pause(self, problem: Exception, batch: WriteBatch) -> None:
        """Takes back the batch, or gives up all that waits, and writes nothing until `_resume` succeeds.

        A mistake of ours says nothing about a medium that is shared: then only the blob that it happened with is lost.
        """
        for clearing in batch.clearings:
            if not clearing.done.done():
                clearing.done.set_exception(problem)
        is_mistake = not isinstance(problem, self._medium.problems)
        with self._changed:
            self._is_in_doubt = True
            self._is_paused = not (self._is_shared and is_mistake)
            if not self._is_shared:
                self._table.lose([*batch.entries, *self._queue])
                self._queue.clear()
            elif is_mistake and len(batch.entries) == 1:
                self._table.lose(batch.entries)
            else:
                self._try_again([entry for entry in batch.entries if entry.write is not None])
        self._medium.failed(problem)

    def _try_again(self, entries: Sequence[Entry]) -> None:
        """Puts entries back into the queue, by their worth. One that has failed too often, unlike others, is lost."""
        for entry in entries:
            entry.num_failed += 1
            if entry.tried_at != self._num_written:
                entry.num_tries, entry.tried_at = entry.num_tries + 1, self._num_written
            if entry.num_tries > _MAX_TRIES:
                self._table.lose([entry])
            elif self._table.holds(entry):
                self._queue.put(entry, Rank(entry.worth))

    def _resume(self) -> None:
        self._medium.check_room()
        with self._changed:
            self._is_paused = False

    def _next_batch(self) -> WriteBatch | None:
        """The next batch, empty if only chores or a retry are due; None once stopped.

        After a problem it has one blob alone: if that one is to blame, it does not take others with it.
        """
        with self._changed:
            self._wait_for_work()
            if self._is_stopped:
                return None
            self._is_working = True
            clearings, self._clearings = self._clearings, []
            clearings = [clearing for clearing in clearings if clearing.done.set_running_or_notify_cancel()]
            if self._is_paused:
                return WriteBatch(clearings=clearings)
            removals = [*self._removals.values()]
            self._removals.clear()
            most = 1 if self._is_in_doubt else _BATCH_ITEMS
            while self._queue and len(self._in_hand) < most and self._in_hand_bytes < self._batch_bytes:
                self._in_hand.append(self._pop())
                self._in_hand_bytes += self._in_hand[-1].nbytes
            return WriteBatch(removals, [*self._in_hand], clearings)

    def _pop(self) -> Entry:
        """The next by rank; after a problem, of those that failed least often: one that always fails blocks none."""
        if not self._is_in_doubt:
            return self._queue.pop()
        entry = min(self._queue, key=lambda entry: entry.num_failed)
        self._queue.remove(entry)
        return entry

    def _wait_for_work(self) -> None:
        """Waits until there is work and the engine was idle for a moment, but no longer than `retry_s`."""
        deadline = self._threads.clock() + self._retry_s
        while (left := deadline - self._threads.clock()) > 0:
            self._changed.wait_for(lambda: self._is_stopped or self._is_due(), left)
            rest_s = self._idle_since + _IDLE_S - self._threads.clock()
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
        is_awaited = self._num_flushing > 0 or bool(self._clearings)
        return self._is_stopped or is_awaited or self.waiting_bytes >= self._queue_bytes // 2

    @property
    def waiting_bytes(self) -> int:
        return self._queue.nbytes + self._in_hand_bytes

    @property
    def _queue_bytes(self) -> int:
        return self._limit.bytes_for(self)

    @property
    def _takes_writes(self) -> bool:
        return not self._is_stopped and (self._is_shared or not self._is_paused)

    def _has_work(self) -> bool:
        return bool(self._clearings) or (bool(self._queue or self._removals) and not self._is_paused)

    def _end(self) -> None:
        with self._changed:
            self._in_hand.clear()
            self._in_hand_bytes = 0
            self._is_working = False
            self._changed.notify_all()

    def _finish(self) -> None:
        for clearing in self._clearings:
            clearing.done.cancel()
        try:
            if not self._is_paused:
                self._do_chores()
        except Exception as problem:
            self._medium.failed(problem)
        self._limit.count(self, is_open=False)
        self._medium.close()
