"""A request for a model that is not open waits for it, before a prompt is made of it.

Streams get signs of life meanwhile. A client that leaves takes its request with it: nothing is loaded for nobody.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from leftoff.chat.work import GivenUpError
from leftoff.host.host import HostClosedError, ModelHost
from leftoff.host.late_host import LateHost
from leftoff.server.hosts import Hosts
from leftoff.server.http.endpoint import Handler, attended
from leftoff.server.http.errors import ClientGoneError, as_api_error, stopping
from leftoff.server.reply.response import EventStream, Framing, Json


@dataclass(frozen=True)
class WaitingRoom:
    """Where the requests of one dialect wait for their model. Streams get signs of life and errors in its framing."""

    hosts: Hosts
    framing: Framing
    sign: Callable[[Any], Json] | None = None  # of life, made of the body, instead of `Framing.nothing`
    streams: Callable[[Any], bool] = lambda body: bool(body.stream)

    def before(self, handler: Handler) -> Handler:
        """The handler of a route, once the model that a body names is open.

        A request that meets a host as it is closed, since another model lies in its file, goes on with the next one.
        """

        async def handle(request: Request, body: Any) -> Response:  # noqa: ANN401
            while True:
                model = self.hosts.named(body.model)
                host = model.ready
                try:
                    if host is not None:
                        return await handler(request, body)
                    return await self._opened(model, request, body, handler)
                except (HostClosedError, GivenUpError):
                    if not model.is_replaced(host):
                        raise

        return handle

    async def _opened(self, model: LateHost, request: Request, body: Any, handler: Handler) -> Response:  # noqa: ANN401
        request.state.asked_at = time.perf_counter()
        with ExitStack() as waiting:
            waiting.enter_context(model.seat.guest())
            opening = asyncio.wrap_future(model.ask())
            waiting.callback(opening.cancel)
            silent_s = EventStream.silent_seconds if self.streams(body) else None
            await attended(request.receive, asyncio.wait([opening], timeout=silent_s))
            if opening.done():
                opening.result()
                return await handler(request, body)
            return _WaitingStream(self, request, body, handler, opening, waiting.pop_all())


class _WaitingStream(Response):
    """Sends signs of life until the model is open, and then what the handler answers."""

    def __init__(
        self,
        room: WaitingRoom,
        request: Request,
        body: Any,  # noqa: ANN401
        handler: Handler,
        opening: "asyncio.Future[ModelHost]",
        waiting: ExitStack,
    ) -> None:
        """What `waiting` holds is let go once the handler has the request."""
        super().__init__()
        self._room, self._request, self._body, self._handler = room, request, body, handler
        self._opening = opening
        self._waiting = waiting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self._room.framing.headers})
            await attended(receive, self._wait(send))
            self._opening.result()
            response = await self._handler(self._request, self._body)
        except ClientGoneError as error:
            scope["app"].state.log_refusal(scope, as_api_error(error), error)
            return
        except (asyncio.CancelledError, Exception) as error:
            reason = error if isinstance(error, Exception) else stopping()
            scope["app"].state.log_refusal(scope, as_api_error(reason), reason)
            framing = self._room.framing
            body = framing.frame(framing.failure(reason)) + framing.last
            await send({"type": "http.response.body", "body": body, "more_body": False})
            return
        finally:
            self._waiting.close()

        async def send_on(message: Message) -> None:
            if message["type"] != "http.response.start":
                await send(message)

        await response(scope, receive, send_on)

    async def _wait(self, send: Send) -> None:
        framing, sign = self._room.framing, self._room.sign
        body = framing.frame(sign(self._body)) if sign is not None else framing.nothing
        while not self._opening.done():
            await send({"type": "http.response.body", "body": body, "more_body": True})
            await asyncio.wait([self._opening], timeout=EventStream.silent_seconds)
