"""Writes behind: one thread that owns a model's folder and does what is queued, in order.

While the engine works, the thread hardly does: it would take a core from it. Then it writes a batch now and then.

What fails is given up, not kept waiting: its memory is free at once, and the tier is told. From then on nothing new is
taken, until opening the folder again works. Then the folder is made to hold what the ledger says, and no more.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from leftoff.core import Tokens
from leftoff.disk.errors import DamagedIndexError
from leftoff.disk.folder import Arrival, ModelFolder
from leftoff.disk.index import Usage
from leftoff.disk.ledger import Entry, Ledger
from leftoff.disk.problems import PROBLEMS, describe

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
class Remove:
    name: str


class Writer:
    """Its methods may be called from any thread and return quickly, but for `flush` and `stop`."""

    def __init__(self, folder: ModelFolder, ledger: Ledger, *, queue_bytes: int, retry_s: float) -> None:
        self._folder = folder
        self._ledger = ledger
        self._queue_bytes = queue_bytes
        self._retry_s = retry_s
        self._queue: deque[Put | Remove] = deque()
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
            self._waiting_bytes += entry.blob.file_bytes
            self._add([Put(entry, tokens)])

    def remove(self, names: Sequence[str]) -> None:
        with self._changed:
            self._add([Remove(name) for name in names])

    def hold_back(self, *, is_busy: bool) -> None:
        if is_busy == self._is_held_back:
            return
        with self._changed:
            self._is_held_back = is_busy
            self._changed.notify_all()

    def use(self, names: Sequence[str]) -> None:
        now = time.time()
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

    def _work(self, batch: Sequence[Put | Remove]) -> None:
        if self._is_paused:
            self._resume()
        puts = [work for work in batch if isinstance(work, Put) and self._ledger.holds(work.entry)]
        removals = [work.name for work in batch if isinstance(work, Remove)]
        if removals:
            self._folder.remove(removals)
            self._num_removed += len(removals)
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

    def _pause(self, problem: Exception, batch: Sequence[Put | Remove] = ()) -> None:
        self._is_damaged |= isinstance(problem, DamagedIndexError)
        self._needed_bytes = min(_BATCH_BYTES, sum(work.nbytes for work in batch if isinstance(work, Put)))
        self._folder.close_index()
        with self._changed:
            self._is_paused = True
            self._ledger.lose([work.entry for work in (*batch, *self._queue) if isinstance(work, Put)])
            self._queue = deque(work for work in self._queue if isinstance(work, Remove))
            self._waiting_bytes = sum(work.nbytes for work in batch if isinstance(work, Put))
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

    def _next_batch(self) -> list[Put | Remove] | None:
        """Works of one kind: what was removed before something was put is gone before the other is written.

        What there is after a while, also if it is held back, or nothing; None at the end.
        """
        with self._changed:
            self._wait_for_a_lull()
            if self._is_stopped:
                return None
            batch: list[Put | Remove] = []
            nbytes = 0
            while self._queue and len(batch) < _BATCH_ITEMS and nbytes < _BATCH_BYTES:
                if batch and type(batch[0]) is not type(self._queue[0]):
                    break
                work = self._queue.popleft()
                nbytes += work.nbytes if isinstance(work, Put) else 0
                batch.append(work)
            self._is_busy = True
            return batch

    def _wait_for_a_lull(self) -> None:
        """Until there is work and the engine has rested a moment, or a while has passed."""
        deadline = time.monotonic() + self._retry_s
        while (left := deadline - time.monotonic()) > 0:
            self._changed.wait_for(lambda: self._is_stopped or self._is_due(), left)
            if self._is_stopped or self._is_pressing():
                return
            if not self._changed.wait_for(
                lambda: self._is_stopped or self._is_pressing() or self._is_held_back, _LULL_S
            ):
                return

    def _lull_is_over(self) -> bool:
        return self._is_held_back or self._is_pressing()

    def _add(self, works: Sequence[Put | Remove]) -> None:
        self._queue.extend(works)
        if self._is_due():
            self._changed.notify_all()

    def _is_due(self) -> bool:
        """There is work, and now is the time for it."""
        return self._has_work() and (self._is_pressing() or not self._is_held_back)

    def _is_pressing(self) -> bool:
        return self._is_stopped or self._num_flushing > 0 or self._waiting_bytes >= self._queue_bytes // 2

    def _has_work(self) -> bool:
        return bool(self._queue) and not self._is_paused

    def _end(self, batch: Sequence[Put | Remove]) -> None:
        with self._changed:
            self._waiting_bytes -= sum(work.nbytes for work in batch if isinstance(work, Put))
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
