"""Write-behind: one thread works off removals, then a queue of writes, by their rank.

- A blob that is released while it is queued is never written.
- A queue that is full gives up what has the lowest rank, and the tier is told that it is lost.
- Where cores are few, the thread waits while the engine is busy; now and then it writes a batch all the same.
- After a write that fails the writer is paused, until the medium has recovered. On a medium of this machine alone all
  that waits is given up at once: its memory is freed, the tier is told, and nothing is taken meanwhile. Where machines
  share the medium, others count on what waits: it is kept, and tried again.
"""

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from leftoff.blobs import clock
from leftoff.blobs.blob import Blob
from leftoff.blobs.entries import Entry, EntryTable
from leftoff.blobs.medium import Medium, Use
from leftoff.blobs.queue import WriteQueue
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


class Writer:
    """Methods may be called from any thread, and return quickly but for `flush` and `stop`."""

    def __init__(
        self,
        medium: Medium,
        table: EntryTable,
        *,
        queue_bytes: int,
        batch_bytes: int,
        retry_s: float,
        gives_way: bool,
        is_shared: bool,
    ) -> None:
        """With `gives_way`, it writes little while the engine is busy: both need the same cores."""
        self._medium = medium
        self._table = table
        self._queue_bytes = queue_bytes
        self._batch_bytes = batch_bytes
        self._retry_s = retry_s
        self._gives_way = gives_way
        self._is_shared = is_shared
        self.written_bytes = 0  # since the start
        self._num_written = 0
        self._queue = WriteQueue()
        self._removals: dict[str, Blob] = {}
        self._in_hand: list[Entry] = []  # of the batch that is being written
        self._in_hand_bytes = 0
        self._uses: dict[str, Use] = {}
        self._changed = threading.Condition()
        self._is_working = self._is_stopped = False
        self._is_paused = False  # after a problem
        self._is_in_doubt = False  # nothing was written since
        self._engine_is_busy = False
        self._idle_since = 0.0
        self._num_flushing = 0
        self._next_chores = 0.0
        self._thread = threading.Thread(target=self._run, name="leftoff-writer", daemon=True)

    def start(self, problem: Exception | None = None) -> None:
        """Starts the thread; paused if opening the medium had a problem."""
        if problem is not None:
            self._pause(problem, WriteBatch())
        self._thread.start()

    # --- called from other threads

    def has_room(self, nbytes: int, rank: Rank) -> bool:
        """Whether `put` would take this much. An item larger than the whole queue is taken when the queue is empty."""
        with self._changed:
            kept_bytes = self._waiting_bytes - self._queue.bytes_below(rank)
            fits = not kept_bytes or kept_bytes + nbytes <= self._queue_bytes
            fits &= self._medium.left_bytes - self._waiting_bytes >= nbytes
            return fits and self._takes_writes

    @property
    def left_bytes(self) -> float:
        """How many bytes more may be put today, beside those that wait."""
        with self._changed:
            return self._medium.left_bytes - self._waiting_bytes

    @property
    def num_waiting(self) -> int:
        return len(self._queue) + len(self._in_hand)

    def put(self, entry: Entry, rank: Rank) -> None:
        with self._changed:
            if not self._takes_writes:
                self._table.lose([entry])
                return
            excess_bytes = self._waiting_bytes + entry.nbytes - self._queue_bytes
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
        """Of entries that the table has dropped, those that wait are not written.

        The others are removed, and so is what was in hand, unless machines share the medium.
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

    def hold_back(self, *, is_busy: bool) -> None:
        if is_busy == self._engine_is_busy or not self._gives_way:
            return
        with self._changed:
            self._engine_is_busy = is_busy
            self._idle_since = time.monotonic()
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
            except Exception as problem:  # the thread must live: without it the tier would silently stop
                self._pause(problem, batch)
            finally:
                self._end()
        self._finish()

    def _work(self, batch: WriteBatch) -> None:
        if self._is_paused:
            self._resume()
        removals = [blob for blob in batch.removals if not self._table.is_written(blob.name)]  # else it was put again
        if removals:
            self._medium.remove(removals)
        entries = [entry for entry in batch.entries if self._table.holds(entry)]
        if entries:
            self._write(entries)
        if time.monotonic() >= self._next_chores:
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
        self._next_chores = time.monotonic() + self._retry_s
        with self._changed:
            uses, self._uses = self._uses, {}
            is_idle = not self._queue
        gone = self._medium.note([*uses.values()], is_idle=is_idle)
        self._table.lose_names([blob.name for blob in gone])

    def _pause(self, problem: Exception, batch: WriteBatch) -> None:
        """Takes back the batch, or gives up all that waits, and writes nothing until `_resume` succeeds.

        A mistake of ours says nothing about a medium that is shared: then only the blob that it happened with is lost.
        """
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
            if entry.tried_at != self._num_written:
                entry.num_tries, entry.tried_at = entry.num_tries + 1, self._num_written
            if entry.num_tries > _MAX_TRIES:
                self._table.lose([entry])
            elif self._table.holds(entry):
                self._queue.put(entry, Rank(entry.worth))

    def _resume(self) -> None:
        self._table.lose_names(self._medium.recover(self._table.written_names()))
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
            if self._is_paused:
                return WriteBatch()
            removals = [*self._removals.values()]
            self._removals.clear()
            most = 1 if self._is_in_doubt else _BATCH_ITEMS
            while self._queue and len(self._in_hand) < most and self._in_hand_bytes < self._batch_bytes:
                self._in_hand.append(self._queue.pop())
                self._in_hand_bytes += self._in_hand[-1].nbytes
            return WriteBatch(removals, [*self._in_hand])

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

    @property
    def _takes_writes(self) -> bool:
        return not self._is_stopped and (self._is_shared or not self._is_paused)

    def _has_work(self) -> bool:
        return bool(self._queue or self._removals) and not self._is_paused

    def _end(self) -> None:
        with self._changed:
            self._in_hand.clear()
            self._in_hand_bytes = 0
            self._is_working = False
            self._changed.notify_all()

    def _finish(self) -> None:
        try:
            if not self._is_paused:
                self._do_chores()
        except Exception as problem:
            self._medium.failed(problem)
        self._medium.close()
