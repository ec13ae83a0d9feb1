"""Work done ahead of time by threads of its own, with as little ado as Python has: it is on the path of every token."""

import queue
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class Task(Generic[Result]):
    """Done by whoever comes first: a thread that had nothing to do, or the one that needs the result."""

    __slots__ = ("_claim", "_done", "_error", "_result", "_work")

    def __init__(self, work: Callable[[], Result]) -> None:
        self._work = work
        self._claim = threading.Lock()
        self._done = threading.Lock()
        self._done.acquire()
        self._error: BaseException | None = None

    def run(self) -> None:
        if not self._claim.acquire(blocking=False):
            return
        try:
            self._result = self._work()
        except BaseException as error:
            self._error = error
        finally:
            self._done.release()

    def wait(self, seconds: float) -> bool:
        """Whether another thread has done it by then."""
        done = self._done.acquire(timeout=seconds)
        if done:
            self._done.release()
        return done

    def result(self) -> Result:
        self.run()
        with self._done:
            if self._error is not None:
                raise self._error
            return self._result


class Ahead:
    """Threads that wait for tasks, until `close`. What none of them has begun is left to who needs it."""

    def __init__(self, num_threads: int, name: str) -> None:
        self._tasks: queue.SimpleQueue[Task[Any] | None] = queue.SimpleQueue()
        names = [f"{name}-{index}" for index in range(num_threads)]
        self._threads = [threading.Thread(target=self._run, name=name, daemon=True) for name in names]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        for _ in self._threads:
            self._tasks.put(None)

    def submit(self, work: Callable[[], Result]) -> Task[Result]:
        task = Task(work)
        self._tasks.put(task)
        return task

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            task.run()
