"""Notices that a part of the fleet fails, says so once, and lets it be tried again a moment later."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

logger = logging.getLogger("leftoff.store")

RETRY_S = 1.0


class Breaker:
    """One part, such as the index. While it is open, nobody waits for the part. Any thread may call it."""

    def __init__(self, part: str, meaning: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`meaning` says what a failure means for the server."""
        self._part = part
        self._meaning = meaning
        self._clock = clock
        self._failed_since: float | None = None
        self._retry_at = 0.0

    @property
    def is_open(self) -> bool:
        return self._failed_since is not None and self._clock() < self._retry_at

    @property
    def is_failing(self) -> bool:
        """It failed last time, whether or not it may be tried again by now."""
        return self._failed_since is not None

    def failed(self, error: BaseException) -> None:
        self._retry_at = self._clock() + RETRY_S
        if self._failed_since is None:
            self._failed_since = self._clock()
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            logger.warning("%s fails (%s): %s, until it is back", self._part, reason, self._meaning)

    def worked(self) -> None:
        if self._failed_since is not None:
            seconds = self._clock() - self._failed_since
            self._failed_since = None
            logger.warning("%s is back after %.0f s", self._part, seconds)

    @contextmanager
    def watching(self, *problems: type[BaseException]) -> Iterator[None]:
        """Counts what happens inside: such a problem is raised all the same."""
        try:
            yield
        except problems as error:
            self.failed(error)
            raise
        self.worked()
