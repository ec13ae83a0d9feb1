"""Threads for work on texts and templates, so that neither the event loop nor a short prompt waits for a long one.

Work is cancelled when its client has left: code that loops over a client's text calls `checkpoint` now and then, which
raises then. Outside of a `TextWork` it does nothing.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import TypeVar

logger = logging.getLogger("leftoff.requests")

Result = TypeVar("Result")

_LONG_BYTES = 64 << 10  # of a request's body; tokenising as many takes a tenth of a second
_STRETCH_SECONDS = 0.001  # of work that keeps other threads from Python's lock, before it lets them have it
_PAUSE_SECONDS = 0.0001  # a shorter one ends before the thread that waits has woken up


class GivenUpError(Exception):
    """The work was cancelled: nobody waits for its result, or its host is closed."""


class TextWork:
    """One cancellable call on a thread of `Lanes`.

    Python switches threads only every 5 ms, so a thread that computes delays the event loop and the engine's thread.
    Long work therefore sleeps for a moment at its checkpoints.
    """

    def __init__(self, *, pauses: bool = False) -> None:
        self._pauses = pauses
        self._is_cancelled = False
        self._paused_at = 0.0

    def cancel(self) -> None:
        self._is_cancelled = True

    def run(self, function: Callable[[], Result]) -> Result:
        token = _current.set(self)
        try:
            self.checkpoint()
            return function()
        finally:
            _current.reset(token)

    def checkpoint(self) -> None:
        if self._is_cancelled:
            raise GivenUpError
        if self._pauses and time.monotonic() - self._paused_at > _STRETCH_SECONDS:
            time.sleep(_PAUSE_SECONDS)
            self._paused_at = time.monotonic()


_current: ContextVar[TextWork | None] = ContextVar("work", default=None)


def checkpoint() -> None:
    """Raises `GivenUpError` if the work that runs on this thread was cancelled."""
    work = _current.get()
    if work is not None:
        work.checkpoint()


class Lanes:
    """Threads: one for short texts, one for long ones, and two that decode pictures."""

    def __init__(self) -> None:
        self._short = ThreadPoolExecutor(1, thread_name_prefix="leftoff-prompts")
        self._long = ThreadPoolExecutor(1, thread_name_prefix="leftoff-long-prompts")
        self._pictures = ThreadPoolExecutor(2, thread_name_prefix="leftoff-pictures")
        self._running: set[TextWork] = set()

    def close(self) -> None:
        for work in list(self._running):
            work.cancel()
        for lane in (self._short, self._long, self._pictures):
            lane.shutdown()  # what is queued ends with `GivenUpError` as it begins

    @property
    def num_running(self) -> int:
        """Calls that are queued or running."""
        return len(self._running)

    @staticmethod
    def is_long(num_bytes: int) -> bool:
        return num_bytes > _LONG_BYTES

    async def run(self, function: Callable[[], Result], num_bytes: int) -> Result:
        """Calls a function on the thread for texts of this size. Cancelled with the task that awaits it."""
        return await _awaited(*self._submit_text(function, num_bytes))

    async def decode(self, function: Callable[[], Result]) -> Result:
        """Calls a function on a thread for pictures. Cancelled with the task that awaits it."""
        return await _awaited(*self._submit(self._pictures, TextWork(pauses=True), function))

    def later(self, function: Callable[[], None], num_bytes: int) -> None:
        """Queues a call that nobody awaits; an error is logged. From any thread."""
        with suppress(GivenUpError):  # the host is closed
            self._submit_text(function, num_bytes)[1].add_done_callback(_log_failure)

    def _submit_text(self, function: Callable[[], Result], num_bytes: int) -> tuple[TextWork, Future[Result]]:
        is_long = self.is_long(num_bytes)
        return self._submit(self._long if is_long else self._short, TextWork(pauses=is_long), function)

    def _submit(
        self, lane: ThreadPoolExecutor, work: TextWork, function: Callable[[], Result]
    ) -> tuple[TextWork, Future[Result]]:
        self._running.add(work)
        try:
            future = lane.submit(partial(work.run, function))
        except RuntimeError as error:  # it is shut down
            self._running.discard(work)
            raise GivenUpError from error
        future.add_done_callback(lambda _: self._running.discard(work))
        return work, future


async def _awaited(work: TextWork, future: Future[Result]) -> Result:
    try:
        return await asyncio.wrap_future(future)
    finally:
        work.cancel()
        del future  # else it, its error and this frame keep each other, and a refused request with all of its files


def _log_failure(done: Future[None]) -> None:
    if not done.cancelled() and not isinstance(error := done.exception(), GivenUpError | None):
        logger.error("work after a reply failed", exc_info=error)
