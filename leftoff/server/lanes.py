"""Threads for work on texts and templates, so that neither the event loop nor a short prompt waits for a long one."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TypeVar

from leftoff.chat.work import Work

Result = TypeVar("Result")

logger = logging.getLogger("leftoff.requests")

_LONG_BYTES = 64 << 10  # of a request's body; tokenising as many takes a tenth of a second


class Lanes:
    """One thread for what is short, one for what is long. Closed once."""

    def __init__(self) -> None:
        self._short = ThreadPoolExecutor(1, thread_name_prefix="leftoff-prompts")
        self._long = ThreadPoolExecutor(1, thread_name_prefix="leftoff-long-prompts")
        self._running: set[Work] = set()

    def close(self) -> None:
        for work in list(self._running):
            work.cancel()
        for lane in (self._short, self._long):
            lane.shutdown(cancel_futures=True)

    @property
    def num_running(self) -> int:
        """Works that are waited for, begun or not."""
        return len(self._running)

    @staticmethod
    def is_long(num_bytes: int) -> bool:
        return num_bytes > _LONG_BYTES

    async def run(self, function: Callable[[], Result], num_bytes: int) -> Result:
        """By the size of what is worked on. Cancelled with the task that awaits it."""
        work, future = self._submit(function, num_bytes)
        try:
            return await asyncio.wrap_future(future)
        finally:
            work.cancel()

    def later(self, function: Callable[[], None], num_bytes: int) -> None:
        """For what nobody waits for. From any thread."""
        with suppress(RuntimeError):  # the server is stopping
            self._submit(function, num_bytes)[1].add_done_callback(_log_failure)

    def _submit(self, function: Callable[[], Result], num_bytes: int) -> tuple[Work, Future[Result]]:
        is_long = self.is_long(num_bytes)
        work = Work(pauses=is_long)
        self._running.add(work)
        future = (self._long if is_long else self._short).submit(partial(work.run, function))
        future.add_done_callback(lambda _: self._running.discard(work))
        return work, future


def _log_failure(done: Future[None]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        logger.error("what follows a reply failed", exc_info=error)
