"""Whether a model may be loaded now: asked by its scheduler, which alone wakes it and lets it sleep."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from msgspec import Struct

from leftoff.engine.errors import EngineError

Clock = Callable[[], float]


class Readiness(Struct, frozen=True):
    """How far a model is from its next request."""

    is_open: bool = True  # it was asked since the start of its server
    is_awake: bool = True
    load_ms: float = 0.0  # to load it: as measured, or reckoned before that
    has_room: bool = True  # it is loaded, or can be without another making way


class NoSeatError(EngineError):
    """The memory that the model needs is held by models that make way for nobody."""


@dataclass
class Swaps:
    """How often a model was loaded again, the time that took, and the prompt tokens that were not read again then."""

    num: int = 0
    seconds: float = 0.0
    spared_tokens: int = 0


class Gate:
    """The gate of a model that shares the machine's memory with no other: it is always open.

    The model sleeps after a while, or never. All methods belong to the engine's thread that do not say otherwise.
    """

    def __init__(self, sleep_after_s: float = math.inf, clock: Clock = time.monotonic) -> None:
        self.name = "the model"
        self.swaps = Swaps()
        self.is_awake = True
        self.load_s = 0.0  # the last time
        self.sleep_after_s = self._default_s = sleep_after_s
        # Asked while the weights are read, on any thread: a load that nobody waits for any more is ended.
        self.is_wanted: Callable[[], bool] = lambda: True
        self._clock = clock
        self.woke_at = -math.inf

    def admits(self) -> bool:
        """Whether a request that waits may begin now. If not, the scheduler is woken when that may have changed.

        Raises `NoSeatError` if it will never be.
        """
        return True

    def withdraw(self) -> None:
        """The requests that were not admitted do not wait any more."""

    def woke(self, seconds: float) -> None:
        """The model was loaded, in so many seconds."""
        self.is_awake, self.load_s = True, seconds
        self.woke_at = self._clock()
        self.swaps.num += 1
        self.swaps.seconds += seconds

    def blocks(self) -> bool:
        """Whether another model waits for the memory of this one."""
        return False

    def gives_way(self, idle_s: float) -> bool:
        """Whether a model that has decoded nothing for so long should sleep now."""
        return idle_s >= self.sleep_after_s

    def slept(self) -> None:
        """The memory of the model is free: it sleeps, or it could not be loaded."""
        self.is_awake, self.sleep_after_s = False, self._default_s

    def readiness(self) -> Readiness:
        """How far the model is from its next request. Any thread may call it."""
        return Readiness(is_awake=self.is_awake, load_ms=1000 * self.load_s)

    def keep(self, seconds: float) -> None:
        """Lets the model be idle for so long, until it sleeps. Any thread may call it."""
        self.sleep_after_s = seconds

    def began(self, waited_s: float, reused_tokens: int) -> str:
        """A request has begun after it `waited_s`. Returns what it waited for, if it was the model to be loaded."""
        came_at = self._clock() - waited_s
        if came_at >= self.woke_at:
            return ""
        self.swaps.spared_tokens += reused_tokens
        return self._reason(came_at)

    def _reason(self, came_at: float) -> str:  # noqa: ARG002
        return f"{self.name} was loading ({self.load_s:.1f} s)"
