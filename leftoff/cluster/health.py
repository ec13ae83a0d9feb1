"""Follows replicas that are not in the index, by asking their servers for /health again and again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress

import aiohttp
import msgspec

from leftoff.cluster.fleet import Fleet
from leftoff.cluster.replica import Replica
from leftoff.cluster.replica_view import ReplicaView
from leftoff.host.fleet import ModelState, Place

logger = logging.getLogger("leftoff.route")

_TIMEOUT_S = 2.0


class Health(msgspec.Struct):
    """The answer of a server to /health: its models."""

    models: list[ModelState] = []


_decode_health = msgspec.json.Decoder(Health).decode
FindUrls = Callable[[Fleet], Awaitable[Collection[str]]]  # the URLs of replicas that may not be in the index


def listed(urls: Sequence[str]) -> FindUrls:
    """Finds replicas whose URLs are given once for all."""
    ours = [url.rstrip("/") for url in urls]

    async def find(_: Fleet) -> list[str]:
        return ours

    return find


class HealthFollower:
    """Keeps a `Fleet` up to date, as `IndexFollower` does. A replica is there as long as it answers."""

    def __init__(self, fleet: Fleet, find_urls: FindUrls, health_s: float) -> None:
        """Every server is asked every `health_s`."""
        self._fleet = fleet
        self._find_urls = find_urls
        self._health_s = health_s
        self._asking: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._asking = asyncio.get_running_loop().create_task(self._ask_all())

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask_all(self) -> None:
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                urls = await self._urls() | {view.told.url for view in self._views(is_in_index=False)}
                known = {view.told.url for view in self._views(is_in_index=True)}
                for view in self._views(is_in_index=False):
                    if view.told.url in known:  # it was known by its URL until its first heartbeat
                        del self._fleet.views[view.id]
                await asyncio.gather(*(self._ask_one(session, url) for url in urls - known))
                await asyncio.sleep(self._health_s)

    async def _urls(self) -> set[str]:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                return {*await self._find_urls(self._fleet)}
        except Exception as error:  # whoever lists them may fail: the replicas that are known answer on
            logger.warning("cannot list the replicas: %s", str(error) or type(error).__name__)
            return set()

    def _views(self, *, is_in_index: bool) -> list[ReplicaView]:
        return [view for view in self._fleet.views.values() if view.is_in_index is is_in_index]

    async def _ask_one(self, session: aiohttp.ClientSession, url: str) -> None:
        with suppress(aiohttp.ClientError, OSError, TimeoutError, ValueError):  # the last if it is none of ours
            async with session.get(f"{url}/health") as answer:
                if answer.ok:
                    self._beat(url, _decode_health(await answer.read()).models or [ModelState("")])
                    return
        if url in self._fleet.views:
            logger.warning("replica %s is gone: it does not answer /health", url)
            self._drop(url)

    def _beat(self, url: str, models: Sequence[ModelState]) -> None:
        """The replicas of a server that has no heartbeat. The id of the first is its URL."""
        before = self._fleet.views.get(url)
        num_observed = before.told.num_observed + 1 if before is not None else 0
        replicas = Replica.all_of(Place(url, url, lambda: models))
        for told in replicas:
            self._fleet.beat(msgspec.structs.replace(told, num_observed=num_observed))
        self._drop(url, besides={told.id for told in replicas})

    def _drop(self, url: str, besides: Collection[str] = ()) -> None:
        """Forgets the replicas of a server, but for those that it still has."""
        for view in self._views(is_in_index=False):
            if view.told.url == url and view.id not in besides:
                view.gone.set()
                del self._fleet.views[view.id]
