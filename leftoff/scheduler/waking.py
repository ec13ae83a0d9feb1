"""Whether the model of an engine is awake. This is the only place that wakes it, behind its gate, and lets it sleep."""

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future

from leftoff.cache.cache import Cache
from leftoff.drafts.drafter import Drafter
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.errors import CancelledError, EngineError
from leftoff.scheduler.errand import Errands
from leftoff.scheduler.gate import Gate

logger = logging.getLogger(__name__)


class Waking:
    """Wakes the model and lets it sleep, on the engine's thread. Any thread may add errands."""

    def __init__(
        self,
        engine: LlamaEngine,
        cache: Cache,
        gate: Gate,
        notify: Callable[[], None],
        most_errands: int,
        drafter: Drafter | None = None,
    ) -> None:
        """`notify` is called, on any thread, when there is something to ask the gate for."""
        self._engine = engine
        self._cache = cache
        self._gate = gate
        self._drafter = drafter
        self.errands = Errands(most_errands, notify)
        self.is_shut = False  # the gate has not opened for those who wait
        self.worked_at = time.monotonic()  # the last time

    @property
    def idle_s(self) -> float:
        """Seconds since something was decoded last."""
        return time.monotonic() - self.worked_at

    def load(self) -> "Future[None]":
        """Done once the model is awake. To cancel it is to give that up."""
        return self.errands.add(lambda: None)

    def ask(self, is_wanted: Callable[[], bool]) -> bool:
        """Asks the gate while anybody waits, and wakes the model once that opens: then it returns True.

        Raises why the model cannot be loaded.
        """
        was_shut, was_asleep, self.is_shut = self.is_shut, self._engine.is_asleep, False
        if not is_wanted():
            if was_shut:
                self._gate.withdraw()
            return False
        try:
            self.is_shut = not self._gate.admits() or not self._wake(is_wanted)
        except Exception as error:
            if not isinstance(error, EngineError):
                logger.exception("an unforeseen error while a model was loaded")
            self._gate.slept()
            self.errands.fail(error)
            raise
        return was_asleep and not self._engine.is_asleep

    def run_errand(self) -> bool:
        """One of those who want the model awake and no slot: replies go on between two. False if there is none."""
        if self.is_shut or self._engine.is_asleep or not self.errands.run_one():
            return False
        self.worked_at = time.monotonic()
        return True

    def sleep(self) -> None:
        """Gives the memory of the model back. What was read stays in the tiers."""
        self._cache.leave_engine()
        if self._drafter is not None and self._drafter.model is not None:
            self._drafter.model.leave_engine()
        self._engine.sleep(self._gate.slept)
        logger.info("%s sleeps: the next request loads it again", self._gate.name)

    def _wake(self, is_wanted: Callable[[], bool]) -> bool:
        """False if nobody waits for it any more."""
        if not self._engine.is_asleep:
            return True
        began = time.perf_counter()
        try:
            with self._cache.lock.let_go():
                self._engine.wake(is_wanted)
            self._cache.ram.budget.shrink()  # what the engine holds beside it may count
        except CancelledError:
            self._gate.slept()
            return False
        seconds = time.perf_counter() - began
        self._gate.woke(seconds)
        self.worked_at = time.monotonic()
        logger.info("%s is awake again after %.1f s", self._gate.name, seconds)
        return True
