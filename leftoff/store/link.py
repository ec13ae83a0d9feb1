"""The connection of this process to the store and its index: one thread with an event loop, on which all calls run.

A call that fails opens the breaker of its part: the index, reading objects, or writing them. Until `prober.py` finds
the part back, nobody else calls it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from redis.asyncio import Redis

from leftoff.blobs.threads import THREADS, Threads
from leftoff.store.breaker import Breaker
from leftoff.store.index import INDEX_PROBLEMS, Index, connect
from leftoff.store.objects import OBJECT_PROBLEMS, ObjectName, Objects, open_objects

logger = logging.getLogger("leftoff.store")

Result = TypeVar("Result")
PROBLEMS = (*INDEX_PROBLEMS, *OBJECT_PROBLEMS)


class Link:
    """Opened at start; a part that is down at that time is treated like one that fails later. There may be no store."""

    def __init__(
        self,
        store_url: str,
        index_url: str,
        fingerprint: str,
        *,
        days: int = 30,
        threads: Threads = THREADS,
        open_store: Callable[[str], Any] = open_objects,
        connect_index: Callable[[str], "Redis"] = connect,
    ) -> None:
        """`open_store` and `connect_index` make the clients of the two parts from their URLs."""
        self.threads = threads
        self._objects = Objects(open_store(store_url)) if store_url else None
        self._thread = threads.loop("leftoff-store")
        self.loop = self._thread.loop
        self.index = self.call(self._connect(connect_index, index_url, fingerprint, days)).result()
        self.group = self.index.keys.group
        index = f"the index {public_url(index_url)}"
        self.index_breaker = Breaker(index, "nothing is shared with other machines", threads.clock)
        self.reads = Breaker(f"the store {store_url}", "nothing is fetched from it", threads.clock)
        writing = f"writing to the store {store_url}"
        self.writes = Breaker(writing, "what is new is kept on this machine alone", threads.clock)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def objects(self) -> Objects:
        assert self._objects is not None, "without --store nothing is stored"
        return self._objects

    @property
    def has_store(self) -> bool:
        return self._objects is not None

    async def _connect(self, connect_index: "Callable[[str], Redis]", url: str, fingerprint: str, days: int) -> Index:
        return Index(connect_index(url), fingerprint, days=days)

    def call(self, work: Coroutine[Any, Any, Result]) -> "Future[Result]":
        """Runs a coroutine on the loop, from any other thread. Closing the link cancels what is not done."""
        return self._thread.call(work)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine on the loop until it ends or the link is closed."""

        def begin() -> None:
            task = self.loop.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._ended)

        self.loop.call_soon_threadsafe(begin)

    async def remove(self, names: Sequence[ObjectName]) -> int:
        """Removes blobs, from the index before their objects; returns the bytes that the index knew of them."""
        nbytes = await self.index.remove(names)
        await self.objects.delete([f"{self.group}/{name}" for name in names])
        return nbytes

    def close(self) -> None:
        """Ends all tasks and the thread."""
        self._thread.close(self.index.close)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("an unforeseen error in a task of the store", exc_info=error)


def public_url(url: str) -> str:
    """A URL without user and password."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
