"""The router's HTTP side: passes requests of any dialect to a replica, and its answer back, byte by byte.

Nothing of an answer is sent before its first byte of body has come: until then a request whose replica fails, refuses
or disappears is sent to another one. After that a stream ends with an error in the words of its dialect.
"""

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import aiohttp
import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from leftoff.cluster.chain import REPLICA, Chain, read_chain
from leftoff.cluster.fleet import UnknownModelError
from leftoff.cluster.joined import is_joined, join_all
from leftoff.cluster.meters import Meters
from leftoff.cluster.replica_view import ReplicaView
from leftoff.cluster.router import AllFullError, NoReplicaError, OwnerGoneError, ReplicaChoice, Router
from leftoff.errors import LeftoffError
from leftoff.server.anthropic.writer import error_body as anthropic_error
from leftoff.server.http.endpoint import attended
from leftoff.server.http.errors import ApiError, ClientGoneError, busy, error_response, shape_at
from leftoff.server.ollama.writer import error_body as ollama_error
from leftoff.server.reply import points

logger = logging.getLogger("leftoff.route")

_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host", "expect"})
# Where a request comes from the router has checked; a replica would take a page of the router for a foreign one.
_NOT_PASSED_ON = _HOP_BY_HOP | {"content-length", points.HEADER, REPLICA, "origin", "sec-fetch-site"}
_NOT_SENT_BACK = _HOP_BY_HOP | {points.HEADER}
SHAPES = {"/v1/messages": anthropic_error, "/api/": ollama_error}
_OWNED_IN_BODY = re.compile(rb'"id": ?"((?:resp|conv)_[\w-]+)"')
_KEY_HEADERS = ("authorization", "x-api-key")
_NO_KEY, _BUSY, _MISSING = 401, 503, 404
_MAX_LOOKS = 720  # two hours, in which a long prompt was read or will never be
_CONNECT_S = 2.0
_KEEP_ALIVE_S = 3.0  # a server closes idle connections after five seconds
_PROBLEMS = (aiohttp.ClientError, OSError, asyncio.TimeoutError)


class ReplicaFailedError(Exception):
    """Nothing of an answer has come, and nothing will: another replica may be tried."""


@dataclass
class Answer:
    """An answer that has begun: its first bytes are here."""

    response: aiohttp.ClientResponse
    first: bytes
    rest: AsyncIterator[bytes]


class Proxy:
    """Passes requests on. Belongs to the event loop, and is made there."""

    look_s, health_s = 10.0, 5.0  # how often a replica that does not answer is asked for its health, and for how long

    def __init__(self, router: Router, meters: Meters, session: aiohttp.ClientSession | None = None) -> None:
        self._router = router
        self._meters = meters
        self._session = session or aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
        )

    async def close(self) -> None:
        await self._session.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            body = await request.body()  # whole: it may be sent twice
        except ClientDisconnect:
            return
        except ApiError as error:
            await error_response(error, scope)(scope, receive, send)
            return
        chain = read_chain(body, request.headers, scope["path"], request.query_params.get("model", ""))
        is_for_all = is_joined(request) and not chain.replica
        with suppress(ClientGoneError):
            await attended(
                receive, self._join(request, send) if is_for_all else self._pass_on(request, body, chain, send)
            )

    async def _join(self, request: Request, send: Send) -> None:
        views = self._router.fleet.views.values()
        if views:
            answer = await join_all(self._session, views, request, _passed_on(request))
        else:
            answer = error_response(busy("no replica can be reached"), request.scope)
        await answer(request.scope, request.receive, send)

    async def refusal(self, request: Request) -> Response | None:
        """A replica's answer to a request for one of the router's own routes if its key is unknown; else None."""
        headers = {name: value for name in _KEY_HEADERS if (value := request.headers.get(name))}
        for view in self._router.fleet.candidates(""):
            if (answer := await self._get(view, "/v1/models", headers)) is not None:
                return answer if answer.status_code == _NO_KEY else None
        return None

    async def _get(self, view: ReplicaView, path: str, headers: Mapping[str, str] | None = None) -> Response | None:
        """A short answer of a replica; None if none comes soon."""
        try:
            async with asyncio.timeout(self.health_s):
                async with self._session.get(view.told.url.rstrip("/") + path, headers=headers) as answer:
                    return Response(await answer.read(), answer.status, media_type="application/json")
        except _PROBLEMS:
            return None

    async def _pass_on(self, request: Request, body: bytes, chain: Chain, send: Send) -> None:
        tried: list[str] = []
        refused: Answer | None = None
        while True:
            try:
                choice = await self._choose(chain, tried)
            except (NoReplicaError, AllFullError, UnknownModelError, OwnerGoneError) as error:
                if refused is not None:
                    await self._send_back(request, refused, None, send)
                else:
                    self._meters.refusals.inc()
                    await error_response(_as_answer(error), request.scope)(request.scope, request.receive, send)
                return
            tried.append(choice.view.id)
            flight = choice.view.send(choice.chain, choice.estimate.work_ms)
            try:
                answer = await self._ask(request, body, choice)
                if _may_know_another(answer, chain) and len(tried) < len(self._router.fleet.views):
                    refused = await _read_whole(answer)
                    continue
                choice.view.begun(flight)
                await self._send_back(request, answer, choice, send)
                return
            except ReplicaFailedError as error:
                choice.view.failed()
                self._meters.retries.inc()
                logger.warning("replica %s: %s: trying another one", choice.view.told.url, error)
            finally:
                choice.view.ended(flight)

    async def _choose(self, chain: Chain, tried: list[str]) -> ReplicaChoice:
        began = time.perf_counter()
        choice = await self._router.choose(chain, tried)
        self._meters.chosen(choice, time.perf_counter() - began)
        return choice

    async def _ask(self, request: Request, body: bytes, choice: ReplicaChoice) -> Answer:
        """Raises `ReplicaFailedError` unless the replica begins to answer."""
        asking = asyncio.create_task(self._begin(request, body, choice.view))
        gone = asyncio.create_task(choice.view.gone.wait())
        try:
            for _ in range(_MAX_LOOKS):
                await asyncio.wait((asking, gone), timeout=self.look_s, return_when=asyncio.FIRST_COMPLETED)
                if asking.done():
                    return await asking
                if gone.done():
                    raise ReplicaFailedError("its heartbeat has stopped")
                if await self._get(choice.view, "/health") is None:
                    raise ReplicaFailedError("it does not answer /health")
            raise ReplicaFailedError(f"it has not begun to answer after {_MAX_LOOKS * self.look_s:.0f} s")
        except _PROBLEMS as error:
            raise ReplicaFailedError(str(error) or type(error).__name__) from error
        finally:
            for task in (asking, gone):
                task.cancel()
            await asyncio.gather(asking, gone, return_exceptions=True)

    async def _begin(self, request: Request, body: bytes, view: ReplicaView) -> Answer:
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        response = await self._session.request(
            request.method,
            view.told.url.rstrip("/") + path,
            data=body or None,
            headers=[*_passed_on(request), (points.HEADER, "1")],
            allow_redirects=False,
            skip_auto_headers=("User-Agent", "Accept-Encoding", "Accept", "Content-Type"),
        )
        chunks = response.content.iter_any()
        first = await anext(chunks, b"")
        return Answer(response, first, chunks)

    async def _send_back(self, request: Request, answer: Answer, choice: ReplicaChoice | None, send: Send) -> None:
        response = answer.response
        told = ((name.lower(), value) for name, value in response.headers.items())
        headers = [(name.encode(), value.encode()) for name, value in told if name not in _NOT_SENT_BACK]
        if choice is not None:
            headers.append((REPLICA.encode(), choice.view.id.encode()))
            self._learn(request, answer, choice)
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        try:
            await send({"type": "http.response.body", "body": answer.first, "more_body": True})
            while chunk := await self._next(answer, choice):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except _PROBLEMS:
            await self._break_off(request, answer, choice, send)
            return
        finally:
            if not response.content.at_eof():
                response.close()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _next(self, answer: Answer, choice: ReplicaChoice | None) -> bytes:
        """The next bytes, empty at the end. Raises `TimeoutError` if they do not come and the replica is not well."""
        while True:
            try:
                async with asyncio.timeout(self.look_s):
                    return await anext(answer.rest, b"")
            except TimeoutError:
                if choice is None or await self._get(choice.view, "/health") is None:
                    raise

    def _learn(self, request: Request, answer: Answer, choice: ReplicaChoice) -> None:
        told = answer.response.headers.get(points.HEADER)
        if told and (decoded := points.decode_points(told)) is not None:
            self._router.learn(choice.chain, decoded)
        if request.method == "POST" and (name := _OWNED_IN_BODY.search(answer.first)) is not None:
            self._router.own(name[1].decode(), choice.view)

    async def _break_off(self, request: Request, answer: Answer, choice: ReplicaChoice | None, send: Send) -> None:
        """The replica failed in the middle. A stream can say so; for the rest the connection is cut."""
        self._meters.breaks.inc()
        where = choice.view.told.url if choice is not None else "a replica"
        logger.warning("%s broke off in the middle of an answer to %s", where, request.url.path)
        if choice is not None:
            choice.view.failed()
        kind = answer.response.headers.get("content-type", "")
        error = ApiError(
            502,
            "the replica failed in the middle of the answer: send the request again",
            kind="server_error",
            code="replica_failed",
        )
        content = msgspec.json.encode(shape_at(request.url.path, SHAPES)(error))
        if kind.startswith("text/event-stream"):
            name = b"event: error\n" if request.url.path.startswith(("/v1/messages", "/v1/responses")) else b""
            last = b"\n\n" + name + b"data: " + content + b"\n\n"
        elif kind.startswith("application/x-ndjson"):
            last = b"\n" + content + b"\n"
        else:
            raise ConnectionAbortedError(error.message)
        await send({"type": "http.response.body", "body": last, "more_body": False})


def _passed_on(request: Request) -> list[tuple[str, str]]:
    return [(name, value) for name, value in request.headers.items() if name not in _NOT_PASSED_ON]


def _may_know_another(answer: Answer, chain: Chain) -> bool:
    """Whether another replica may answer what this one does not: it is busy, or has not made what is named."""
    return answer.response.status == _BUSY or (chain.owner is not None and answer.response.status == _MISSING)


async def _read_whole(answer: Answer) -> Answer:
    """An answer that may be sent later: its connection is free for others."""
    with suppress(*_PROBLEMS):
        answer.first += b"".join([chunk async for chunk in answer.rest])
    return answer


def _as_answer(error: LeftoffError) -> ApiError:
    if isinstance(error, UnknownModelError):
        return ApiError(404, str(error), param="model", code="model_not_found")
    if isinstance(error, OwnerGoneError):
        return ApiError(404, str(error), param="previous_response_id", code="previous_response_not_found")
    return busy(str(error))
