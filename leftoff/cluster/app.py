"""The router as a web application: its own few routes, and everything else passed on to a replica."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

import aiohttp
import msgspec
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from leftoff.cluster.fleet import Fleet, ReplicaView
from leftoff.cluster.index import IndexFollower
from leftoff.cluster.meters import Meters
from leftoff.cluster.proxy import Proxy
from leftoff.cluster.replica import Replica
from leftoff.cluster.router import Router

logger = logging.getLogger("leftoff.route")

_HEALTH_S = 1.0

FindUrls = Callable[[Fleet], Awaitable[Collection[str]]]  # the URLs of replicas that may not be in the index


def listed(urls: Sequence[str]) -> FindUrls:
    """Finds replicas whose URLs are given once for all."""
    ours = [url.rstrip("/") for url in urls]

    async def find(_: Fleet) -> list[str]:
        return ours

    return find


class RouterApp:
    """An ASGI application. `/health`, `/metrics` and `/cluster` are its own."""

    def __init__(self, index_url: str | None = None, find_urls: FindUrls | None = None) -> None:
        self.fleet = Fleet()
        self._find_urls = find_urls
        self._meters = Meters(self.fleet)
        self._index = IndexFollower(index_url, self.fleet) if index_url else None
        self._proxy: Proxy | None = None
        self._asking: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            assert self._proxy is not None, "the application was not started: run it with its lifespan"
            await (self._own(scope["method"], scope["path"]) or self._proxy)(scope, receive, send)

    # --- lifespan

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        self.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    def start(self) -> None:
        """Begins to follow the index, and to ask replicas that are not in it for their health."""
        if self._index is not None:
            self._index.start()
        self._proxy = Proxy(Router(self.fleet, self._index), self._meters)
        if self._find_urls is not None:
            self._asking = asyncio.get_running_loop().create_task(self._ask_for_health(self._find_urls))

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        if self._index is not None:
            await self._index.close()
        if self._proxy is not None:
            await self._proxy.close()

    async def _ask_for_health(self, find_urls: FindUrls) -> None:
        """Once a second: replicas that are not in the index are there as long as they answer."""
        timeout = aiohttp.ClientTimeout(total=2 * _HEALTH_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                urls = await self._listed(find_urls) | {view.id for view in self._views(is_in_index=False)}
                known = {view.told.url for view in self._views(is_in_index=True)}
                for url in urls & known:
                    self.fleet.views.pop(url, None)  # it was known by its URL until its first heartbeat
                await asyncio.gather(*(self._ask_one(session, url) for url in urls - known))
                await asyncio.sleep(_HEALTH_S)

    async def _listed(self, find_urls: FindUrls) -> set[str]:
        try:
            async with asyncio.timeout(2 * _HEALTH_S):
                return {*await find_urls(self.fleet)}
        except Exception as error:  # whoever lists them may fail: the replicas that are known answer on
            logger.warning("cannot list the replicas: %s", str(error) or type(error).__name__)
            return set()

    def _views(self, *, is_in_index: bool) -> list[ReplicaView]:
        return [view for view in self.fleet.views.values() if view.is_in_index is is_in_index]

    async def _ask_one(self, session: aiohttp.ClientSession, url: str) -> None:
        with suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with session.get(f"{url}/health") as answer:
                if answer.ok:
                    self.fleet.beat(Replica(url, url))
                    return
        view = self.fleet.views.pop(url, None)
        if view is not None:
            view.gone.set()
            logger.warning("replica %s is gone: it does not answer /health", url)

    # --- own routes

    def _own(self, method: str, path: str) -> Response | None:
        if method != "GET":
            return None
        if path in ("/health", "/v1/health"):
            is_ready = bool(self.fleet.candidates(""))
            return JSONResponse({"status": "ok" if is_ready else "no replica"}, 200 if is_ready else 503)
        if path == "/metrics":
            return Response(self._meters.text(), media_type="text/plain; version=0.0.4")
        if path == "/cluster":
            return JSONResponse(self._described())
        return None

    def _described(self) -> dict[str, Any]:
        groups = self.fleet.groups
        return {
            "index": None if self._index is None else "ok" if self._index.is_reachable else "unreachable",
            "groups": [
                {"fingerprint": name, "described": views[0].told.described, "replicas": [*map(_described, views)]}
                for name, views in groups.items()
            ],
            "notes": _differences(list(groups.values())),
        }


def _described(view: ReplicaView) -> dict[str, Any]:
    told = view.told
    return {
        "id": told.id,
        "url": told.url,
        "model": told.model,
        "version": told.version,
        "state": told.state if view.takes_requests else "unreachable",
        "load": msgspec.to_builtins(told.load),
        "queue_ms": round(view.queue_ms, 1),
        "in_flight": len(view.flights),
        "held_points": len(view.held) if view.number is not None else None,
        "requests": view.num_requests,
        "failures": view.num_failures,
    }


def _differences(groups: Sequence[Sequence[ReplicaView]]) -> list[str]:
    """Replicas of different models, libraries or KV types never share a byte: it is said which they are."""
    if len(groups) < 2:
        return []
    most = max(groups, key=len)
    return [
        f"{view.told.url} shares nothing with the others: it runs {view.told.described or 'something unknown'},"
        f" they run {most[0].told.described or 'something unknown'}"
        for group in groups
        if group is not most
        for view in group
    ]
