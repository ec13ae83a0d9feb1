"""The router as a web application: its own few routes, and everything else passed on to a replica."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.datastructures import Headers, State
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from leftoff.cluster.fleet import Fleet
from leftoff.cluster.health import FindUrls, HealthFollower
from leftoff.cluster.index import IndexFollower
from leftoff.cluster.meters import Meters
from leftoff.cluster.overview import overview
from leftoff.cluster.proxy import SHAPES, Proxy
from leftoff.cluster.replica_view import ReplicaView
from leftoff.cluster.router import Router
from leftoff.host.request_log import RequestLog
from leftoff.server.http.middleware import HEALTH
from leftoff.server.http.refusals import RefusalLog
from leftoff.store.fleet_key import NO_KEY, FleetKey

logger = logging.getLogger("leftoff.route")

_HEALTH_S = 1.0


class RouterApp:
    """An ASGI application. `/`, `/health`, `/metrics` and `/cluster` are its own."""

    def __init__(
        self,
        index_url: str | None = None,
        find_urls: FindUrls | None = None,
        guards: Sequence[Middleware] = (),
        key: FleetKey | None = None,
        *,
        health_s: float = _HEALTH_S,
    ) -> None:
        """`guards` are those of a server, from the outside in (`server/app.py`).

        Replicas that are not in the index are asked for their health every `health_s`.
        """
        self.fleet = Fleet()
        self.state = State({"error_shapes": SHAPES, "log_refusal": RefusalLog(RequestLog(0))})  # as errors look for it
        self._guarded: ASGIApp = self._answer
        for guard in reversed(guards):
            self._guarded = guard.cls(self._guarded, *guard.args, **guard.kwargs)
        health = HealthFollower(self.fleet, find_urls, health_s) if find_urls is not None else None
        self._index = index = IndexFollower(index_url, self.fleet, key) if index_url else None
        self._followers = [follower for follower in (index, health) if follower is not None]
        self._meters = Meters(self.fleet, (lambda: index.is_reachable) if index is not None else None)
        if index_url and key is None:
            logger.warning(NO_KEY)
        self._proxy: Proxy | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            scope["app"] = self
            await self._guarded(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._proxy is not None, "the application was not started: run it with its lifespan"
        own = self._own(scope)
        if own is not None and scope["path"] not in HEALTH:
            own = await self._proxy.refusal(Request(scope)) or own
        await (own or self._proxy)(scope, receive, send)

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
        self._proxy = Proxy(Router(self.fleet, self._index), self._meters)
        for follower in self._followers:
            follower.start()

    async def close(self) -> None:
        for follower in self._followers:
            await follower.close()
        if self._proxy is not None:
            await self._proxy.close()

    # --- own routes

    def _own(self, scope: Scope) -> Response | None:
        if scope["method"] != "GET":
            return None
        path = scope["path"]
        if path == "/":
            return overview(self._described(), Headers(scope=scope).get("accept", ""))
        if path in HEALTH:
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
            "notes": _differences(groups),
        }


def _described(view: ReplicaView) -> dict[str, Any]:
    told = view.told
    return {
        "id": told.id,
        "url": told.url,
        "model": told.model,
        "readiness": msgspec.to_builtins(told.readiness),
        "version": told.version,
        "state": told.state if view.takes_requests else "unreachable",
        "load": msgspec.to_builtins(told.load),
        "queue_ms": round(view.queue_ms, 1),
        "in_flight": len(view.flights),
        "held_points": len(view.held) if view.number is not None else None,
        "requests": view.num_requests,
        "failures": view.num_failures,
    }


def _differences(groups: Mapping[str, Sequence[ReplicaView]]) -> list[str]:
    """Replicas of one name but of different files, libraries or KV types share no byte: it is said which they are."""
    by_model: dict[str, list[Sequence[ReplicaView]]] = {}
    for fingerprint, views in groups.items():
        if fingerprint:
            by_model.setdefault(views[0].told.model, []).append(views)
    return [
        f"{view.told.url} shares nothing with the others of {name!r}: it runs {view.told.described}, they run "
        f"{most[0].told.described}"
        for name, same in by_model.items()
        if (most := max(same, key=len))
        for group in same
        if group is not most
        for view in group
    ]
