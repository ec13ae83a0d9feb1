"""One route of a dialect: how it is reached, and what it takes. The routes and their description come from it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from leftoff.server.http.errors import on_error, stopping

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Endpoint:
    method: str
    path: str
    summary: str
    handler: Handler
    body: type[Any] | None = None

    def at(self, path: str) -> "Endpoint":
        """The same under another path."""
        return replace(self, path=path)

    def route(self) -> Route:
        return Route(self.path, self._answer, methods=[self.method])

    async def _answer(self, request: Request) -> Response:
        try:
            return await self.handler(request)
        except asyncio.CancelledError:  # the server does not wait any longer
            return await on_error(request, stopping())
        except Exception as error:  # also what nobody foresaw: the connection is good for more requests
            return await on_error(request, error)
