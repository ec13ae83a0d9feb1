"""Notices that a part of the fleet fails, and says so once; until it is known to be back, nobody waits for it."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from leftoff.units import printable

logger = logging.getLogger("leftoff.store")

_REASON = 240  # characters: what stores say of themselves is long


class PartDownError(ConnectionError):
    """A part that failed is not asked again before it is known to be back."""


class Breaker:
    """One part, such as the index. `prober.py` finds out when it is back. Any thread may call it."""

    def __init__(self, part: str, meaning: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`meaning` says what a failure means for the server."""
        self._part = part
        self._meaning = meaning
        self._clock = clock
        self._failed_since: float | None = None
        self._back_at = float("-inf")
        self.when_back: list[Callable[[], None]] = []  # called when it works again

    @property
    def is_failing(self) -> bool:
        return self._failed_since is not None

    def check(self) -> None:
        """Raises `PartDownError` while the part fails."""
        if self.is_failing:
            raise PartDownError(f"{self._part} fails")

    def failed(self, error: BaseException, began: float = float("inf")) -> None:
        """Records that a call failed, unless it began before the part came back."""
        if self._failed_since is None and began >= self._back_at:
            self._failed_since = self._clock()
            reason = printable(str(error)).strip().partition("\n")[0] or type(error).__name__
            if len(reason) > _REASON:
                reason = f"{reason[: _REASON // 2]} … {reason[-_REASON // 2 :]}"
            logger.warning("%s fails (%s): %s, until it is back", self._part, reason, self._meaning)

    def worked(self) -> None:
        if self._failed_since is not None:
            self._back_at = self._clock()
            seconds = self._back_at - self._failed_since
            self._failed_since = None
            logger.warning("%s is back after %.0f s", self._part, seconds)
            self.came_back()

    def came_back(self) -> None:
        """Calls all who wait for the part. It may have forgotten what it was told, also if nobody missed it."""
        for call in self.when_back:
            call()

    @contextmanager
    def asking(self, *problems: type[BaseException]) -> Iterator[None]:
        """Watches the calls inside, unless the part is known to fail."""
        self.check()
        with self.watching(*problems):
            yield

    @contextmanager
    def watching(self, *problems: type[BaseException]) -> Iterator[None]:
        """Records whether the calls inside work. Problems are raised all the same."""
        began = self._clock()
        try:
            yield
        except problems as error:
            self.failed(error, began)
            raise
        self.worked()
