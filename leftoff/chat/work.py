"""Work on texts and templates that may take a while: it is given up when nobody waits for it any more.

Whatever loops over a client's text calls `checkpoint` now and then. Outside of a `Work` that does nothing.
"""

import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

Result = TypeVar("Result")

_STRETCH_SECONDS = 0.001  # of work that keeps other threads from Python's lock, before it lets them have it
_PAUSE_SECONDS = 0.0001  # a shorter one ends before the thread that waits has woken up


class GivenUpError(Exception):
    """Nobody waits for the result."""


class Work:
    """One call, made on a thread of its own lane. Any thread may cancel it.

    Python hands its lock over only every 5 ms, so a thread that computes slows down all that wait for input or for the
    engine. Work that is not in a hurry pauses between its checkpoints instead.
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


_current: ContextVar[Work | None] = ContextVar("work", default=None)


def checkpoint() -> None:
    """Raises `GivenUpError` if the work that runs on this thread was cancelled."""
    work = _current.get()
    if work is not None:
        work.checkpoint()
