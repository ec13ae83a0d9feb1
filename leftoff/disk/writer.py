"""Writes behind: one thread that owns a model's folder and does what is queued: removals first, they make the room.

What is removed before it was written never is: a disk that is slower than its tier evicts holds nothing up in memory.

While the engine works, the thread hardly does: it would take a core from it. Then it writes a batch now and then.

What fails is given up, not kept waiting: its memory is free at once, and the tier is told. From then on nothing new is
taken, until opening the folder again works. Then the folder is made to hold what the ledger says, and no more.
"""

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from leftoff.disk import clock
from leftoff.disk.entries import Entry, Ledger
from leftoff.disk.errors import DamagedIndexError
from leftoff.disk.folder import Arrival, ModelFolder
from leftoff.disk.index import Usage
from leftoff.disk.problems import PROBLEMS, describe
from leftoff.types import Tokens

logger = logging.getLogger("leftoff.disk")

_BATCH_BYTES = 64 << 20  # in one transaction: what is acknowledged together
_BATCH_ITEMS = 64
_REMOVALS_PER_CLEANING = 256
_LULL_S = 0.25  # the next request often follows at once
_LEAVE_S = 1.0  # to end what was begun


@dataclass(frozen=True)
class Put:
    entry: Entry
    tokens: Tokens

    @property
    def nbytes(self) -> int:
        return self.entry.blob.file_bytes


@dataclass(frozen=True)
class Batch:
    """What is done at once. A name in both lists was written before, and is to be written anew."""

    removals: list[str] = field(default_factory=list)
    puts: list[Put] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        return sum(put.nbytes for put in self.puts)


class Writer:
    """Its methods may be called from any thread and return quickly, but for `flush` and `stop`."""

    def __init__(self, folder: ModelFolder, ledger: Ledger, *, queue_bytes: int, retry_s: float) -> None:
        self._folder = folder
        self._ledger = ledger
        self._queue_bytes = queue_bytes
        self._retry_s = retry_s
        self._puts: dict[str, Put] = {}  # by name, the first to be written first
        self._removals: dict[str, None] = {}  # names, as an ordered set
        self._waiting_bytes = 0  # of the queue, and of what is being written
        self._usages: dict[str, Usage] = {}
        self._changed = threading.Condition()
        self._is_busy = self._is_stopped = self._is_paused = self._is_damaged = False
        self._is_held_back = False
        self._num_flushing = 0
        self._said = ""
        self._needed_bytes = 0  # by what failed last
        self._num_removed = 0
        self._next_chores = 0.0
        self._thread = threading.Thread(target=self._run, name="leftoff-disk", daemon=True)

    def start(self, problem: Exception | None = None) -> None:
        """With a problem that opening the folder had, it begins with a pause."""
        if problem is not None:
            self._pause(problem)
        self._thread.start()

    # --- for other threads

    def takes(self, nbytes: int) -> bool:
        """An item larger than the whole queue has its turn when the queue is empty."""
        with self._changed:
            fits = not self._waiting_bytes or self._waiting_bytes + nbytes <= self._queue_bytes
            return fits and not self._is_paused and not self._is_stopped

    def put(self, entry: Entry, tokens: Tokens) -> None:
        with self._changed:
            if self._is_paused or self._is_stopped:
                self._ledger.lose([entry])
                return
            self._puts[entry.name] = Put(entry, tokens)
            self._waiting_bytes += entry.blob.file_bytes
            self._tell()

    def remove(self, entries: Sequence[Entry]) -> None:
        """What the ledger does not hold any more. Another of the same name, put since, is left alone."""
        with self._changed:
            for entry in entries:
                put = self._puts.get(entry.name)
                if put is not None and put.entry is entry:
                    del self._puts[entry.name]
                    self._waiting_bytes -= put.nbytes
                else:
                    self._removals[entry.name] = None
            self._tell()

    def hold_back(self, *, is_busy: bool) -> None:
        if is_busy == self._is_held_back:
            return
        with self._changed:
            self._is_held_back = is_busy
            self._changed.notify_all()

    def use(self, names: Sequence[str]) -> None:
        now = clock.now()
        with self._changed:
            for name in names:
                before = self._usages.get(name)
                self._usages[name] = Usage(now, before.hits + 1 if before else 1)

    def flush(self, timeout_s: float) -> bool:
        with self._changed:
            self._num_flushing += 1
            self._changed.notify_all()
            try:
                return self._changed.wait_for(lambda: not self._is_busy and not self._has_work(), timeout_s)
            finally:
                self._num_flushing -= 1

    def stop(self, timeout_s: float) -> None:
        """What is not written by then is given up."""
        deadline = time.monotonic() + timeout_s
        self.flush(timeout_s)
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        self._thread.join(max(_LEAVE_S, deadline - time.monotonic()))

    # --- the thread

    def _run(self) -> None:
        while (batch := self._next_batch()) is not None:
            try:
                self._work(batch)
            except Exception as problem:  # without this thread there would be no disk tier, and nobody would know
                self._pause(problem, batch)
            finally:
                self._end(batch)
        self._leave()

    def _work(self, batch: Batch) -> None:
        if self._is_paused:
            self._resume()
        removals = [name for name in batch.removals if not self._ledger.has_file(name)]  # else it was written anew
        if removals:
            self._folder.remove(removals)
            self._num_removed += len(removals)
        puts = [put for put in batch.puts if self._ledger.holds(put.entry)]
        if puts:
            self._write(puts)
        if time.monotonic() >= self._next_chores:
            self._do_chores()

    def _write(self, puts: Sequence[Put]) -> None:
        arrivals = [Arrival(put.entry.blob, put.entry.item, put.tokens) for put in puts if put.entry.item is not None]
        self._folder.add(arrivals)
        self._ledger.has_written([put.entry for put in puts])
        if self._said:
            logger.warning("the cache in %s is written again", self._folder.path)
            self._said = ""

    def _do_chores(self) -> None:
        self._next_chores = time.monotonic() + self._retry_s
        with self._changed:
            usages, self._usages = self._usages, {}
        if usages:
            self._folder.note(usages)
        if self._num_removed >= (1 if self._is_stopped else _REMOVALS_PER_CLEANING):
            self._num_removed = 0
            self._folder.index.drop_unreachable_runs()

    def _pause(self, problem: Exception, batch: Batch | None = None) -> None:
        batch = batch or Batch()
        self._is_damaged |= isinstance(problem, DamagedIndexError)
        self._needed_bytes = min(_BATCH_BYTES, batch.nbytes)
        self._folder.close_index()
        with self._changed:
            self._is_paused = True
            self._ledger.lose([put.entry for put in (*batch.puts, *self._puts.values())])
            self._puts.clear()
            self._waiting_bytes = batch.nbytes
        self._say(problem)

    def _say(self, problem: Exception) -> None:
        """Once, and again only when it changes or after all was well."""
        message = describe(problem, self._folder.path)
        if message != self._said:
            mistake = None if isinstance(problem, PROBLEMS) else problem  # of ours, not of the disk
            logger.warning("nothing is written to disk: %s", message, exc_info=mistake)
        self._said = message

    def _resume(self) -> None:
        self._folder.open(anew=self._is_damaged)
        missing = self._folder.reconcile(self._ledger.written_names())
        self._ledger.lose(self._ledger.find_all(missing))
        self._folder.files.check_room(self._needed_bytes)
        self._is_damaged = False
        with self._changed:
            self._is_paused = False

    def _next_batch(self) -> Batch | None:
        """What there is after a while, also if it is held back, or nothing; None at the end."""
        with self._changed:
            self._wait_for_a_lull()
            if self._is_stopped:
                return None
            batch = Batch([*self._removals], self._first_puts())
            self._removals.clear()
            self._is_busy = True
            return batch

    def _first_puts(self) -> list[Put]:
        puts: list[Put] = []
        nbytes = 0
        while self._puts and len(puts) < _BATCH_ITEMS and nbytes < _BATCH_BYTES:
            puts.append(self._puts.pop(next(iter(self._puts))))
            nbytes += puts[-1].nbytes
        return puts

    def _wait_for_a_lull(self) -> None:
        """Until there is work and the engine has rested a moment, or a while has passed."""
        deadline = time.monotonic() + self._retry_s
        while (left := deadline - time.monotonic()) > 0:
            self._changed.wait_for(lambda: self._is_stopped or self._is_due(), left)
            if self._is_pressing() or not self._changed.wait_for(self._lull_is_over, _LULL_S):
                return

    def _lull_is_over(self) -> bool:
        return self._is_held_back or self._is_pressing()

    def _tell(self) -> None:
        if self._is_due():
            self._changed.notify_all()

    def _is_due(self) -> bool:
        """There is work, and now is the time for it."""
        return self._has_work() and (self._is_pressing() or not self._is_held_back)

    def _is_pressing(self) -> bool:
        return self._is_stopped or self._num_flushing > 0 or self._waiting_bytes >= self._queue_bytes // 2

    def _has_work(self) -> bool:
        return bool(self._puts or self._removals) and not self._is_paused

    def _end(self, batch: Batch) -> None:
        with self._changed:
            self._waiting_bytes -= batch.nbytes
            self._is_busy = False
            self._changed.notify_all()

    def _leave(self) -> None:
        try:
            if not self._is_paused:
                self._next_chores = 0.0
                self._do_chores()
        except PROBLEMS as problem:
            self._say(problem)
        self._folder.close()
