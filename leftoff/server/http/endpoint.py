"""One route of a dialect: how it is reached, and what it takes. The routes and their description come from it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive

from leftoff.server.http.errors import ClientGoneError, on_error, stopping

Handler = Callable[[Request], Awaitable[Response]]
Result = TypeVar("Result")


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


async def attended(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """Await `work` while the client is connected; cancel it, and raise `ClientGoneError`, when the client leaves."""
    task = asyncio.create_task(work)
    gone = asyncio.create_task(_gone(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError
        return await task
    finally:
        await _cancelled(task, gone)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancelled(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    waiting: Awaitable[Any] = asyncio.gather(*tasks, return_exceptions=True)
    await waiting
