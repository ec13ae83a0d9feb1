"""HTTP on paper: what the router's proxy uses of an aiohttp session, and a client's call of the router."""

import asyncio
from collections.abc import AsyncIterator, Mapping, MutableMapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import aiohttp
import msgspec

from lab.box.server import Answered, Job, Server
from lab.box.world import Process, World
from leftoff.cluster.app import RouterApp
from leftoff.cluster.proxy import Proxy
from leftoff.server.reply import points

_LATENCY_S = 0.004
PATH = "/v1/chat/completions"
_HEALTH = "/health"
_APP = RouterApp()  # for the shapes of its errors


class Web:
    """The servers by URL, and the requests that each has not answered."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.servers: dict[str, Server] = {}
        self._waiting: dict[str, list[asyncio.Future[Answered]]] = {}

    def break_off(self, server: Server) -> None:
        """Its connections are closed, as the system does when a process dies."""
        for answer in self._waiting.pop(server.process.name, []):
            if not answer.done():
                answer.set_exception(aiohttp.ServerDisconnectedError())

    async def ask(self, process: Process, url: str, body: bytes, headers: Mapping[str, str]) -> Answered:
        world, server = self.world, await self._connect(url)
        answer: asyncio.Future[Answered] = process.loop.create_future()
        done: Future[Answered] = Future()
        done.add_done_callback(lambda _: world.at(world.now + _LATENCY_S, process, partial(_end, answer, done)))
        job = Job(headers["authorization"], msgspec.json.decode(body)["messages"], done)
        self._waiting.setdefault(server.process.name, []).append(answer)
        world.at(world.now, server.process, partial(server.ask, job))
        return await answer

    async def look(self, process: Process, url: str) -> None:
        """Returns once the server has answered that it is well."""
        world, server = self.world, await self._connect(url)
        is_well = asyncio.Event()
        world.at(world.now, server.process, lambda: world.at(world.now + _LATENCY_S, process, is_well.set))
        await is_well.wait()

    async def _connect(self, url: str) -> Server:
        await asyncio.sleep(self.world.random.uniform(0, _LATENCY_S))
        server = self.servers.get(url)
        if server is None or not server.process.is_alive or not server.is_ready or server.is_stopping:
            raise aiohttp.ClientConnectionError(f"{url} refuses")
        return server


def _end(answer: "asyncio.Future[Answered]", done: "Future[Answered]") -> None:
    if not answer.done():
        answer.set_result(done.result())


class Session:
    """What the proxy sees as an `aiohttp.ClientSession`."""

    def __init__(self, web: Web, process: Process) -> None:
        self._web = web
        self._process = process

    async def request(
        self,
        method: str,  # noqa: ARG002
        url: str,
        data: bytes,
        headers: Sequence[tuple[str, str]],
        **_: object,
    ) -> "Response":
        return Response(await self._web.ask(self._process, url.removesuffix(PATH), data, dict(headers)))

    @asynccontextmanager
    async def get(self, url: str, **_: object) -> AsyncIterator["Response"]:
        """The proxy asks a replica that is silent for its health."""
        await self._web.look(self._process, url.removesuffix(_HEALTH))
        yield Response()


class Response:
    """An answer that has come as a whole, and its own content."""

    status = 200

    def __init__(self, answered: Answered | None = None) -> None:
        self.headers = {"content-type": "application/json"}
        if answered is not None:
            self.headers[points.HEADER] = answered.points
        self._answered = answered
        self.content = self

    async def read(self) -> bytes:
        return msgspec.json.encode(self._answered)

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield await self.read()

    def at_eof(self) -> bool:
        return True

    def close(self) -> None: ...


class Refused(Exception):  # noqa: N818
    """The router had no replica, or its answer broke off."""


async def through(proxy: Proxy, body: bytes, headers: Mapping[str, str]) -> Answered:
    """A client's request to the router."""
    sent: list[MutableMapping[str, Any]] = []
    asked = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> MutableMapping[str, Any]:
        if asked:
            return asked.pop()
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]  # it never leaves

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "scheme": "http",
        "http_version": "1.1",
        "server": ("router", 80),
        "path": PATH,
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "app": _APP,
    }
    try:
        await proxy(scope, receive, send)
    except ConnectionAbortedError as error:
        raise Refused(str(error)) from error
    content = b"".join(message.get("body", b"") for message in sent)
    if sent[0]["status"] != 200:
        raise Refused(content.decode())
    return msgspec.json.decode(content, type=Answered)
