"""Routes, and their OpenAPI description."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, get_type_hints

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive

from leftoff import __version__
from leftoff.server.http.body import read_body
from leftoff.server.http.errors import ClientGoneError, ErrorShape, on_error, shape_at, stopping

Handler = Callable[..., Awaitable[Response]]  # of the request, and of its body if that has a type
Result = TypeVar("Result")

_SCHEMA_REFERENCE = "#/components/schemas/{name}"
_PATH_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")


@dataclass(frozen=True)
class Endpoint:
    """One route: method, path, handler, and the type of its JSON body if it has one.

    The body is read and decoded here, and handed to the handler.
    """

    method: str
    path: str
    summary: str
    handler: Handler
    body: type[Any] | None = None
    decodes: bool = True  # else the handler decodes the body itself, where it wants one

    def at(self, path: str) -> "Endpoint":
        """The same route under another path."""
        return replace(self, path=path)

    def route(self) -> Route:
        return Route(self.path, self._answer, methods=[self.method])

    async def _answer(self, request: Request) -> Response:
        try:
            if self.body is None or not self.decodes:
                return await self.handler(request)
            return await self.handler(request, await read_body(request, self.body))
        except asyncio.CancelledError:  # the server shuts down and waits no longer
            return await on_error(request, stopping())
        except Exception as error:  # unforeseen ones too: the connection stays usable
            return await on_error(request, error)


async def attended(receive: Receive, work: Awaitable[Result]) -> Result:
    """Await `work` while the client is connected; cancel it, and raise `ClientGoneError`, when the client leaves."""
    task = asyncio.ensure_future(work)
    gone = asyncio.create_task(_gone(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError
        return await task
    finally:
        for each in (task, gone):
            each.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)
        del task, gone, each  # else they, their error and this frame keep each other, and all that the request has


def while_connected(handler: Handler) -> Handler:
    """For a handler that streams nothing: it is given up when its client leaves, so that no model is loaded for it."""

    async def handle(routes: Any, request: Request, *body: Any) -> Response:  # noqa: ANN401
        return await attended(request.receive, handler(routes, request, *body))

    return handle


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def openapi(endpoints: Sequence[Endpoint], error_shapes: Mapping[str, ErrorShape]) -> dict[str, Any]:
    """Describe routes, bodies and errors as OpenAPI, from the types that the bodies are decoded with."""
    error_types = {endpoint: _error_type(shape_at(endpoint.path, error_shapes)) for endpoint in endpoints}
    types = [*(endpoint.body for endpoint in endpoints if endpoint.body), *dict.fromkeys(error_types.values())]
    schemas, components = msgspec.json.schema_components(types, ref_template=_SCHEMA_REFERENCE)
    schema_of = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        path = _PATH_PARAMETER.sub(r"{\1}", endpoint.path)
        body = schema_of[endpoint.body] if endpoint.body else None
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(
            endpoint, body, schema_of[error_types[endpoint]]
        )
    return {
        "openapi": "3.1.0",
        "info": {"title": "leftoff", "version": __version__},
        "paths": paths,
        "components": {"schemas": components},
    }


def _operation(endpoint: Endpoint, body: Any, error: Any) -> dict[str, Any]:  # noqa: ANN401
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "responses": {
            "200": {"description": "done"},
            "4XX": {"description": "refused, and why", "content": {"application/json": {"schema": error}}},
        },
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    if names := _PATH_PARAMETER.findall(endpoint.path):
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    return operation


def _error_type(shape: ErrorShape) -> type[msgspec.Struct]:
    kind: type[msgspec.Struct] = get_type_hints(shape)["return"]
    return kind
