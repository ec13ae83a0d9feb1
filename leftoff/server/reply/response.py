"""All replies to one HTTP request, and the HTTP response that carries them.

Replies are cancelled as soon as their client disconnects.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, Self

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from leftoff.host.host import ModelHost
from leftoff.server.http.connection import NUM_UNREAD, max_unread_bytes
from leftoff.server.http.endpoint import attended
from leftoff.server.http.errors import ClientGoneError, error_body, stopping, too_slow
from leftoff.server.reply import points
from leftoff.server.reply.stream import End, Event, ReplyStream
from leftoff.server.request.job import ReplyJob

_encode = msgspec.json.Encoder().encode

_EVENT_STREAM = b"text/event-stream; charset=utf-8"

Json = dict[str, Any]  # an object as it is sent: the order of its keys is theirs on the wire


@dataclass(frozen=True)
class Framing:
    """How the streams of a dialect are written: chunks as bytes, errors as chunks, and what comes at the end."""

    media_type: bytes
    frame: Callable[[Any], bytes]
    nothing: bytes = b""  # what all clients skip
    failure: Callable[[Exception], Any] = error_body
    last: bytes = b""

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        return [(b"content-type", self.media_type), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]


def _event(chunk: object) -> bytes:
    return b"data: " + _encode(chunk) + b"\n\n"


def _named_event(chunk: Json) -> bytes:
    return b"event: %b\n" % chunk["type"].encode() + _event(chunk)


def _line(chunk: object) -> bytes:
    return _encode(chunk) + b"\n"


EVENTS = Framing(_EVENT_STREAM, _event, b":\n\n")  # a comment
NAMED_EVENTS = Framing(_EVENT_STREAM, _named_event, b":\n\n")  # for chunks with a `type`
LINES = Framing(b"application/x-ndjson", _line)


class Writer(ABC):
    """Writes the replies to one request in one dialect."""

    framing: ClassVar[Framing]

    @property
    def shows_progress(self) -> bool:
        """Whether the stream sends anything while the prompt is read."""
        return False

    @abstractmethod
    def chunks(self, stream: ReplyStream, event: Event) -> Iterator[Json]:
        """The chunks that are sent for an event of a reply."""

    def keep_alive(self, stream: ReplyStream) -> Iterable[Json]:  # noqa: ARG002
        """Chunks that say nothing, for a stream that was silent for some seconds. If none, `Framing.nothing` is sent.

        A request may wait long for a slot, and its prompt may take minutes. Clients give up a silent stream meanwhile.
        """
        return ()

    def failure(self, error: Exception) -> Iterable[Json]:
        """The chunks for an error in a stream whose HTTP status is already sent."""
        return [self.framing.failure(error)]

    @abstractmethod
    def whole(self, replies: Sequence[ReplyStream]) -> Json | list[Json]:
        """The body of a response that is not streamed. All replies have ended."""


class Replies:
    """The replies to one request as one stream of events. Leaving the `with` block cancels those still running."""

    def __init__(
        self, host: ModelHost, jobs: Sequence[ReplyJob], request_id: str, *, shows_progress: bool = False
    ) -> None:
        self._host = host
        self._events: asyncio.Queue[tuple[ReplyStream, Event] | None] = asyncio.Queue()
        self.streams: list[ReplyStream] = []
        try:
            for index, job in enumerate(jobs):
                name = request_id if len(jobs) == 1 else f"{request_id}-{index}"
                self.streams.append(ReplyStream(host, job, name, index, self._deliver, shows_progress=shows_progress))
        except BaseException:
            self.close()
            raise

    def _deliver(self, stream: ReplyStream, event: Event) -> None:
        self._events.put_nowait((stream, event))

    def close(self) -> None:
        for stream in self.streams:
            stream.close()

    def are_behind(self, num_unread: int) -> bool:
        """Whether a running reply must be cancelled because its client leaves `num_unread` bytes unread."""
        if not num_unread:
            return False
        limit = max_unread_bytes(others_wait=self._host.scheduler.num_waiting > 0)
        return num_unread > limit and not all(stream.is_complete for stream in self.streams)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wake(self) -> None:
        """Makes `batches` yield, an empty batch if nothing has happened."""
        self._events.put_nowait(None)

    async def batches(self) -> AsyncIterator[list[tuple[ReplyStream, Event]]]:
        """The events since the last batch: one if the client keeps up, several if it does not."""
        num_left = len(self.streams)
        while num_left:
            events = [await self._events.get()]
            while not self._events.empty():
                events.append(self._events.get_nowait())
            batch = [event for event in events if event is not None]
            num_left -= sum(isinstance(event, End) for _, event in batch)
            yield batch

    async def collect(self) -> list[ReplyStream]:
        """All replies, in order, once the last has ended. Raises the error of any that failed."""
        async for batch in self.batches():
            for _, event in batch:
                if isinstance(event, End) and event.failure is not None:
                    raise event.failure
        return self.streams


async def answer(
    request: Request, host: ModelHost, jobs: Sequence[ReplyJob], request_id: str, writer: Writer, *, stream: bool
) -> Response:
    """Starts the jobs and responds with their replies, as one body or as a stream."""
    replies = Replies(host, jobs, request_id, shows_progress=stream and writer.shows_progress)
    headers = _headers_for_router(request, host, jobs[0])
    if stream:
        return EventStream(replies, writer, headers)
    request.state.has_jobs = True
    with replies:
        response = json_response(writer.whole(await attended(request.receive, replies.collect())))
        response.headers.update(headers)
        return response


def _headers_for_router(request: Request, host: ModelHost, job: ReplyJob) -> dict[str, str]:
    """A router asks where the prompt may be resumed."""
    if points.HEADER not in request.headers:
        return {}
    found = points.points_of(job.prompt, job.namespace, host.engine.settings.grid)
    return {points.HEADER: points.encode_points(found)}


def json_response(content: Any) -> Response:  # noqa: ANN401
    """A response with a JSON body."""
    return Response(_encode(content), media_type="application/json")


class EventStream(Response):
    """A streamed response. Sends through ASGI directly, since this is on the path of every token."""

    silent_seconds = 15.0  # until something is sent to keep the client: proxies and clients wait for a minute or more

    def __init__(self, replies: Replies, writer: Writer, headers: Mapping[str, str]) -> None:
        super().__init__()
        self._replies = replies
        self._sent_headers = [*writer.framing.headers, *((k.encode(), v.encode()) for k, v in headers.items())]
        self._writer = writer
        self._is_silent = True  # nothing but signs of life was sent since the last tick

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        num_unread: Callable[[], int] = scope.get("state", {}).get(NUM_UNREAD, lambda: 0)
        with self._replies, suppress(ClientGoneError):
            await send({"type": "http.response.start", "status": 200, "headers": self._sent_headers})
            ticks = asyncio.create_task(self._tick())
            try:
                await attended(receive, self._write(send, num_unread))
            except asyncio.CancelledError:  # the server does not wait any longer: a last word
                await send(self._failure(stopping()))
            finally:
                ticks.cancel()

    async def _tick(self) -> None:
        while True:
            self._is_silent = True
            await asyncio.sleep(self.silent_seconds)
            if self._is_silent:
                self._replies.wake()

    async def _write(self, send: Send, num_unread: Callable[[], int]) -> None:
        """`send` blocks only beyond the limit for unread bytes, and no reply is running then."""
        async for batch in self._replies.batches():
            if self._replies.are_behind(num_unread()):
                self._replies.close()
                await send(self._failure(too_slow(num_unread())))
                return
            chunks = chain.from_iterable(self._chunks(stream, event) for stream, event in batch)
            data = self._framed(chunks) if batch else self._sign_of_life()
            self._is_silent &= not (batch and data)
            if data:
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": self._writer.framing.last, "more_body": False})

    def _sign_of_life(self) -> bytes:
        return self._framed(self._writer.keep_alive(self._replies.streams[0])) or self._writer.framing.nothing

    def _failure(self, error: Exception) -> Message:
        body = self._framed(self._writer.failure(error)) + self._writer.framing.last
        return {"type": "http.response.body", "body": body, "more_body": False}

    def _framed(self, chunks: Iterable[Json]) -> bytes:
        return b"".join(map(self._writer.framing.frame, chunks))

    def _chunks(self, stream: ReplyStream, event: Event) -> Iterable[Json]:
        if isinstance(event, End) and event.failure is not None:
            return self._writer.failure(event.failure)
        return self._writer.chunks(stream, event)
