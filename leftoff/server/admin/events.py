"""GET /cache/events: what the cache does while somebody looks, as server-sent events.

`state` has the budgets, the slots, the queue and the totals, whenever they changed, at most once a second. `request`
has the reuse report of each request that ends. A tenant gets only its own. While nobody looks, nothing is made or kept.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from leftoff.host.host import HostClosedError, ModelHost
from leftoff.host.request_log import RequestRecord
from leftoff.server.admin.cache import slot_view, tier_view
from leftoff.server.dialect import Dialect
from leftoff.server.hosts import Hosts
from leftoff.server.http.connection import ENDS_WITH_SERVER
from leftoff.server.http.endpoint import Endpoint, attended
from leftoff.server.http.errors import ApiError, ClientGoneError
from leftoff.server.http.loop_bridge import loop_bridge
from leftoff.server.reply.joined import Answer, answers_of, budgets_of, joined
from leftoff.server.reply.response import EVENTS
from leftoff.server.tenant import Tenant, tenant_of

_PAUSE_SECONDS = 1.0
_MAX_WAITING = 256  # reports for one who reads slowly; the oldest are dropped


class EventsApi(Dialect):
    """Show the cache while it works."""

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint("GET", "/cache/events", "Changes of the cache, as server-sent events", self.events)]

    async def events(self, request: Request) -> Response:
        self._hosts.require_alive()
        model = request.query_params.get("model")
        only = self._hosts.opened(model)[0].name if model else None
        request.scope["state"][ENDS_WITH_SERVER] = True
        return _Feed(self._hosts, only, tenant_of(request))


class _Feed(Response):
    """The stream of one who looks, until the connection ends, or the model that is asked for is closed."""

    def __init__(self, hosts: Hosts, only: str | None, tenant: Tenant) -> None:
        super().__init__()
        self._hosts = hosts
        self._only = only  # the model that is asked for; None: all
        self._log = hosts.log
        self._tenant = tenant
        self._states: dict[str, Answer] = {}  # as last seen: while a model is being loaded, it shows nothing
        self._records: asyncio.Queue[RequestRecord] = asyncio.Queue(_MAX_WAITING)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        watch = partial(loop_bridge().put, is_urgent=False)

        def watcher(record: RequestRecord) -> None:  # on the loop of its request
            if self._tenant.sees(record.namespace) and self._only in (None, record.model):
                watch(partial(self._keep, record))

        self._log.watchers.append(watcher)  # before the head is sent: who has it misses nothing
        try:
            await send({"type": "http.response.start", "status": 200, "headers": EVENTS.headers})
            with suppress(ClientGoneError, HostClosedError, ApiError, asyncio.CancelledError):
                await attended(receive, self._write(send))
        finally:
            self._log.watchers.remove(watcher)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, send: Send) -> None:
        async for event in self._events():
            await send({"type": "http.response.body", "body": event, "more_body": True})

    async def _events(self) -> AsyncIterator[bytes]:
        last: Answer | None = None
        due = 0.0
        while True:
            if time.monotonic() >= due:
                state = await self._state()
                due = time.monotonic() + _PAUSE_SECONDS
                if state != last:
                    last = state
                    yield _event(b"state", state)
            with suppress(TimeoutError):
                record = await asyncio.wait_for(self._records.get(), max(0.0, due - time.monotonic()))
                yield _event(b"request", record.as_dict())

    def _keep(self, record: RequestRecord) -> None:
        if self._records.full():
            self._records.get_nowait()
        self._records.put_nowait(record)

    async def _state(self) -> Answer:
        """How full everything is, and the tenant's requests."""

        async def show(host: ModelHost) -> Answer:
            return await host.between_steps(partial(self._state_of, host))

        hosts = self._hosts.opened(self._only)
        states = self._states | await answers_of(hosts, show)
        self._states = {host.name: states[host.name] for host in hosts if host.name in states}
        is_of_one = self._only or self._hosts.has_one
        state = self._states[hosts[0].name] if is_of_one else joined(self._states, budgets_of(hosts))
        return state | {"totals": state["totals"] | {"started_at": self._log.started_at}}

    def _state_of(self, host: ModelHost) -> Answer:
        """How full one model is, and the tenant's requests to it. Called on the engine's thread."""
        tenant = self._tenant
        counts = self._log.counts[tenant.name, host.name]
        return {
            "tiers": [tier_view(tier, tenant) for tier in host.cache.tiers],
            "slots": [slot_view(sequence, tenant, with_age=False) for sequence in host.cache.sequences],
            "context_tokens": host.cache.memory.num_cells,
            "running": len(tenant.own(host.scheduler.runs)),
            "waiting": len(tenant.own(host.scheduler.waiting)),
            "totals": {
                "requests": counts.requests.total(),
                "reused_tokens": counts.reused_tokens,
                "computed_tokens": counts.computed_tokens.total(),
                "generated_tokens": counts.generated_tokens,
                "read_ahead_tokens": counts.read_ahead_tokens,
                "prompt_seconds": counts.prompt_seconds,
                "saved_seconds": counts.saved_seconds,
            },
        }


def _event(name: bytes, content: object) -> bytes:
    return b"event: %b\n" % name + EVENTS.frame(content)
