"""The engine's thread: steps the scheduler while there is work, and puts things in order while there is none."""

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from leftoff.scheduler.scheduler import Scheduler

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
_IDLE_SECONDS = 1.0


class Worker:
    """Starts with `start`, ends with `stop`. Everything that touches engine or cache goes through it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leftoff-engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread after the present step. Running requests are cancelled."""
        self._stopping.set()
        self.scheduler.engine.cancel()
        self.scheduler.wake()
        self._thread.join()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def call(self, function: Callable[[], Result]) -> Future[Result]:
        """Runs a function between two steps, where engine and cache stand still."""
        future: Future[Result] = Future()

        def run() -> None:
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        self._calls.put(run)
        self.scheduler.wake()
        return future

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._run_calls()
            if self._work():
                continue
            if self._calls.empty():
                self.scheduler.wait(_IDLE_SECONDS)
        self.scheduler.cancel_all()
        self._run_calls()

    def _work(self) -> bool:
        """One step, or what is to be done between requests. No error ends the thread: the next may fare better."""
        try:
            if self.scheduler.step():
                return True
            self.scheduler.cache.save_idle()
        except Exception as error:
            logger.exception("an unforeseen error on the engine's thread")
            self.scheduler.fail_all(error)
        return False

    def _run_calls(self) -> None:
        while not self._calls.empty():
            self._calls.get()()
