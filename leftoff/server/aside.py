"""Work on a request's text away from the event loop, given up when the client leaves."""

from collections.abc import Callable
from typing import TypeVar

from starlette.requests import Request

from leftoff.server.http.endpoint import attended
from leftoff.server.service import Service

Result = TypeVar("Result")


async def aside(service: Service, request: Request, function: Callable[[], Result]) -> Result:
    """Only for what is long the client is watched: all else is done before it could leave."""
    num_bytes = len(await request.body())
    work = service.aside(function, num_bytes)
    return await (attended(request.receive, work) if service.lanes.is_long(num_bytes) else work)
