"""The threads, locks and clock by which a process writes behind. A simulation hands in its own (`lab/box`)."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, TypeVar

Result = TypeVar("Result")
_JOIN_S = 2.0


class Threads:
    """The threads, locks and clock of the operating system."""

    def clock(self) -> float:
        """Seconds; never set back."""
        return time.monotonic()

    def lock(self) -> AbstractContextManager[Any]:
        return threading.Lock()

    def condition(self) -> threading.Condition:
        return threading.Condition()

    def start(self, work: Callable[[], None], name: str) -> threading.Thread:
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread

    def pool(self, num_threads: int, name: str) -> Executor:
        return ThreadPoolExecutor(num_threads, thread_name_prefix=name)

    def loop(self, name: str) -> "LoopThread":
        return LoopThread(name)


class LoopThread:
    """An event loop in a thread of its own. Any other thread may call it."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._is_ending = False
        self._thread = THREADS.start(self._run, name)

    def call(self, work: Coroutine[Any, Any, Result]) -> "Future[Result]":
        """Runs a coroutine on the loop; on one that is closing it is cancelled."""
        with self._lock:
            if not self._is_ending:
                return asyncio.run_coroutine_threadsafe(work, self.loop)
        work.close()
        answer: Future[Result] = Future()
        answer.cancel()
        return answer

    def close(self, ending: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Cancels all tasks, awaits `ending`, and stops."""
        if self._thread.is_alive():
            self.call(self._end(ending))
            self._thread.join(_JOIN_S)

    async def _end(self, ending: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with self._lock:
            self._is_ending = True
        await asyncio.sleep(0)  # all that was called until now is a task then
        tasks = asyncio.all_tasks(self.loop) - {asyncio.current_task()}  # also those that other threads wait for
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            await ending()
        finally:
            self.loop.stop()

    def _run(self) -> None:
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()


THREADS = Threads()
