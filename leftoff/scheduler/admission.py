"""Holds runs back that gain by waiting: another run reads what their prompt begins with, or it comes from a disk."""

from collections.abc import Callable, Iterable

from leftoff.cache.cache import Cache
from leftoff.cache.tree import common_prefix
from leftoff.scheduler.batcher import Limits
from leftoff.scheduler.run import Run


class Admission:
    """Belongs to the engine's thread."""

    def __init__(self, cache: Cache, limits: Limits, wake: Callable[[], None]) -> None:
        """`wake` is called, on any thread, when something has come from a disk."""
        self._cache = cache
        self._limits = limits
        self._wake = wake
        self._fetching: set[Run] = set()  # those that wait and need something from below RAM

    def hold_back(self, run: Run, running: Iterable[Run]) -> bool:
        """Holds the run back at this step if it gains by waiting. Called while it waits and there is a slot for it."""
        return not run.reads_all and (self._wait_for_prefix(run, running) or self._wait_for_disk(run))

    def let_go(self, run: Run) -> None:
        """The run has a slot now, or ends."""
        self._fetching.discard(run)
        run.stop_waiting()

    def _wait_for_prefix(self, run: Run, running: Iterable[Run]) -> bool:
        """True if another run is reading a prefix of this prompt: it saves a snapshot there, to resume from."""
        enough = 1 if run.is_held else self._limits.worth_waiting_tokens
        run.is_held = False
        for other in running:
            if not other.turn.is_reading or other.job.namespace != run.job.namespace:
                continue
            common = common_prefix(other.turn.prompt.tokens, run.prompt.tokens)
            if common - other.turn.position < enough:
                continue
            # the plan is made last: it is the expensive part
            if common - self._cache.plan(run.prompt, run.job.namespace).resume >= enough:
                other.turn.add_snapshot_position(common)
                run.is_held = True
                break
        return run.is_held

    def _wait_for_disk(self, run: Run) -> bool:
        """Begins to look up and fetch what the prompt resumes from. True until all of it has come.

        No more fetches than slots are begun: what is in RAM before its time fills it.
        """
        if not self._cache.tiers.lower:
            return False
        if run.preparation is None:
            run.is_put_off = len(self._fetching) > self._cache.sequences.num_free_slots
            if run.is_put_off:
                return True
            run.preparation = self._cache.prepare(run.prompt, run.job.namespace, self._wake)
        run.preparation.proceed()
        if run.preparation.has_work:
            self._fetching.add(run)
        return run.preparation.is_waiting
