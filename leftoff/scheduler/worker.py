"""The engine's thread: steps the scheduler while there is work, and writes cached state behind while there is none.

The engine is made on this thread too. llama.cpp's compute threads belong to the thread that called it first, and spin
while they wait; a second caller would get a second set, more threads than cores, and decode at half the speed.
"""

import logging
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from leftoff.scheduler.errand import Errands
from leftoff.scheduler.scheduler import Scheduler

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
_IDLE_SECONDS = 1.0
_SAVE_SECONDS = 10.0  # for the disk, when the server stops


class Worker:
    """Runs from its creation to `stop`. All access to engine and cache goes through it."""

    def __init__(self, make: Callable[[], Scheduler]) -> None:
        """`make` runs on the new thread; its exceptions are raised here."""
        self._calls = Errands(sys.maxsize, lambda: self.scheduler.wake())  # noqa: PLW0108 - the scheduler is yet to be made
        self._stopping = threading.Event()
        made: Future[Scheduler] = Future()
        self._thread = threading.Thread(target=self._run, args=(make, made), name="leftoff-engine", daemon=True)
        self._thread.start()
        self.scheduler: Scheduler = made.result()

    def stop(self) -> None:
        """Ends the thread after the current step. Jobs are cancelled, and no model is loaded for them."""
        self._stopping.set()
        for run in self.scheduler.waiting:
            self.scheduler.cancel(run)
        self.scheduler.waking.errands.close()
        self.scheduler.engine.cancel()
        self.scheduler.wake()
        self._thread.join()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive() and not self._stopping.is_set()

    def call(self, function: Callable[[], Result]) -> Future[Result]:
        """Runs a function on the engine's thread between two steps. Once that has ended, the future is cancelled."""

        def call_locked() -> Result:
            with self.scheduler.cache.lock:
                return function()

        return self._calls.add(call_locked)

    def _run(self, make: Callable[[], Scheduler], made: Future[Scheduler]) -> None:
        try:
            scheduler = make()
        except BaseException as error:
            made.set_exception(error)
            return
        made.set_result(scheduler)
        while not self._stopping.is_set():
            self._run_calls()
            if not self._work(scheduler) and not self._calls:
                scheduler.wait(_IDLE_SECONDS)
        self._end(scheduler)

    def _work(self, scheduler: Scheduler) -> bool:
        """One step, or idle work if there is nothing to decode: then False. An error fails the runs, not the thread."""
        with scheduler.cache.lock:
            try:
                if scheduler.step():
                    return True
                scheduler.tidy()
            except Exception as error:
                logger.exception("an unforeseen error on the engine's thread")
                scheduler.fail(scheduler.runs, error)
        return False

    def _end(self, scheduler: Scheduler) -> None:
        """Cancels all jobs, answers all calls and saves the cache; then answers what was called while it was saved."""

        def cancel_all() -> None:
            with scheduler.cache.lock:
                scheduler.close()

        caches = [scheduler.cache]
        if scheduler.drafter is not None and scheduler.drafter.model is not None:
            caches.append(scheduler.drafter.model.cache)
        saves = [partial(cache.close, _SAVE_SECONDS) for cache in caches]
        acts: list[Callable[[], None]] = [cancel_all, self._run_calls, *saves, self._run_calls, self._calls.close]
        for do in acts:
            try:
                do()
            except Exception:
                logger.exception("an unforeseen error while the engine's thread ends")

    def _run_calls(self) -> None:
        while self._calls.run_one():
            pass
