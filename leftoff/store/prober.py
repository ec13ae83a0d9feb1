"""Probes the index and the store now and then, to notice when one that failed is back, or a slow one is fast again.

While a part fails nobody else calls it, and no request waits for it. The store is measured by fetching an object: else
one slow minute would make fetching seem too slow for ever, because nothing would be fetched any more.
"""

import asyncio
import logging
import secrets
from contextlib import suppress

from leftoff.store.index import INDEX_PROBLEMS, check_writes
from leftoff.store.link import Link
from leftoff.store.objects import OBJECT_PROBLEMS, MissingError

logger = logging.getLogger("leftoff.store")

PAUSE_S = 1.0
_MEASURE_S = 10.0
_PROBE_S = 3.0  # for an answer
_PROBE = "probe"
_PROBE_BYTES = 256 << 10
_WEIGHT = 0.5  # of the newest measurement
_DOUBTED = 3  # times as slow as usual
_SLOW_MS = 100.0  # of a call that nothing is known of


class Prober:
    """Belongs to the loop of the link."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.call_ms: float | None = None
        self.bytes_per_ms: float | None = None
        self._next = 0.0
        self._doubts = False  # that the last call tells how fast the store is

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while True:
            try:
                await self._ask()
            except Exception:  # without this task a part that failed would never be back
                logger.exception("an unforeseen error while the parts of the fleet were asked")
            await asyncio.sleep(PAUSE_S)

    async def _ask(self) -> None:
        if self._link.index_breaker.is_failing:
            await self.ask_index()
        if self._link.has_store and (self._link.reads.is_failing or self._link.threads.clock() >= self._next):
            await self.measure_store()

    async def ask_index(self) -> None:
        with suppress(*INDEX_PROBLEMS), self._link.index_breaker.watching(*INDEX_PROBLEMS):
            await check_writes(self._link.index.redis)

    async def measure_store(self) -> None:
        """Fetches the probe; where there is none it is put first."""
        self._next = self._link.threads.clock() + _MEASURE_S
        began, was_there = self._link.threads.clock(), self.call_ms is not None
        try:
            with self._link.reads.watching(*OBJECT_PROBLEMS):
                async with asyncio.timeout(_PROBE_S):
                    got = await self._link.objects.get(_PROBE)
        except MissingError:
            with suppress(*INDEX_PROBLEMS):
                await self._doubt_index(was_there)
                await self._put_probe()
        except OBJECT_PROBLEMS:
            return
        else:
            self.saw(got.call_ms, 1000 * (self._link.threads.clock() - began) - got.call_ms)

    async def _doubt_index(self, was_there: bool) -> None:
        """Without the probe other objects may be lost too: the collector is to compare the index with them."""
        await self._link.index.redis.delete(self._link.index.keys.process)
        if was_there:
            logger.warning("the store has lost an object: the index is compared with what it still has")

    async def _put_probe(self) -> None:
        """That it cannot be put is not recorded: another machine may put it, and then nobody here would write again."""
        self._next = 0.0
        with suppress(*OBJECT_PROBLEMS):
            async with asyncio.timeout(_PROBE_S):
                await self._link.objects.put(_PROBE, secrets.token_bytes(_PROBE_BYTES))
            self._link.writes.worked()
            self._link.reads.worked()

    def saw(self, call_ms: float, rest_ms: float) -> None:
        """A call that is much slower than usual counts only if the next one is, too: it may have waited for a part."""
        usual_ms = _SLOW_MS if self.call_ms is None else self.call_ms
        if call_ms > _DOUBTED * usual_ms and not self._doubts:
            self._doubts, self._next = True, 0.0
            return
        self._doubts = False
        rate = _PROBE_BYTES / max(rest_ms, 0.01)
        self.call_ms = call_ms if self.call_ms is None else self.call_ms + _WEIGHT * (call_ms - self.call_ms)
        self.bytes_per_ms = (
            rate if self.bytes_per_ms is None else self.bytes_per_ms + _WEIGHT * (rate - self.bytes_per_ms)
        )
