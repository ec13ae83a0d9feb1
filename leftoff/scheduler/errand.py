"""Work for the engine's thread that needs no slot, such as vectors of texts, or a look into the cache."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from leftoff.scheduler.job import QueueFullError

Result = TypeVar("Result")


class Errand(Generic[Result]):
    """A function for another thread, and the future of its result. To cancel that is to give the errand up."""

    def __init__(self, function: Callable[[], Result]) -> None:
        self.future: Future[Result] = Future()
        self._function = function

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self._function())
        except BaseException as error:
            self.future.set_exception(error)

    def fail(self, error: Exception) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


class Errands:
    """Errands in the order in which they came. Any thread may add one; they run on the engine's."""

    def __init__(self, most: int, notify: Callable[[], None]) -> None:
        self._most = most
        self._notify = notify
        self._waiting: deque[Errand[Any]] = deque()
        self._is_closed = False
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        with self._lock:
            return any(not errand.future.cancelled() for errand in self._waiting)

    def add(self, function: Callable[[], Result]) -> "Future[Result]":
        errand = Errand(function)
        with self._lock:
            if len(self._waiting) >= self._most:
                raise QueueFullError(f"{len(self._waiting)} requests are waiting already: try again later")
            if self._is_closed:
                errand.future.cancel()
                return errand.future
            self._waiting.append(errand)
        errand.future.add_done_callback(lambda _: self._notify())
        self._notify()
        return errand.future

    def run_one(self) -> bool:
        """False if there is none."""
        with self._lock:
            errand = self._waiting.popleft() if self._waiting else None
        if errand is not None:
            errand.run()
        return errand is not None

    def fail(self, error: Exception) -> None:
        for errand in self._taken():
            errand.fail(error)

    def close(self) -> None:
        """Cancels those that wait, and those that are added from now on."""
        with self._lock:
            self._is_closed = True
        for errand in self._taken():
            errand.future.cancel()

    def _taken(self) -> list[Errand[Any]]:
        with self._lock:
            taken, self._waiting = [*self._waiting], deque()
        return taken
