"""Connections: accepted as many as the server can hold, each under the limits that uvicorn's protocol lacks.

There is a time limit for the head of a request, a least rate for sending bodies and for reading responses, and a limit
on the bytes of both. Routes are not known here; `EventStream` asks how much of its stream the client has not read yet.
"""

import asyncio
import heapq
import logging
import re
import resource
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from enum import Enum, auto
from http import HTTPStatus
from time import monotonic
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from leftoff.config import MIB, Settings
from leftoff.server.http.line_rate import LineRate

logger = logging.getLogger(__name__)

# How long an idle connection is kept. Clients open a new one easily, and SDKs keep none for longer.
IDLE_SECONDS = 5

# In the state of the ASGI scope: a function for the number of bytes that the client has not read yet, and a mark of
# streams without an end, which a server that stops does not wait for.
NUM_UNREAD = "num_unread"
ENDS_WITH_SERVER = "ends_with_server"

# A stream that is not read is buffered up to this, some four thousand tokens of a chat, and then cancelled.
_UNREAD_BYTES = MIB
_UNREAD_WHILE_OTHERS_WAIT = 64 << 10  # for a slot; the kernels on both sides buffer more than this again
_HEAD_SECONDS = 10  # clients send a head at once
_HEAD_BYTES = 64 << 10  # as h11 has it; llhttp has no limit
# Bytes that a client must send or read per window: 500 a second, as Apache's mod_reqtimeout wants it. A limit on the
# whole time would break honest uploads over slow lines.
_WINDOW_SECONDS, _WINDOW_BYTES = 30, 15_000
_BEYOND_QUEUE = 128  # connections that are idle, or whose request needs no slot, such as /health
_OWN_HANDLES = 64  # for the disk cache, the log, a GPU's driver
_MIN_CONNECTIONS = 8
_ACCEPTED_AT_ONCE = 64  # before the event loop does other work
_MADE_ROOM = 8  # connections to close when no handle is free: the server needs some for itself too
_SEND_BUFFER_BYTES = 64 << 10  # else the kernel buffers 4 MB for a client that does not read
_SILENT_SECONDS = 60  # between two equal log lines
_UPGRADE = re.compile(rb"\r\nupgrade:", re.IGNORECASE)
_refusals = LineRate()


def max_unread_bytes(*, others_wait: bool) -> int:
    """Write buffer of a stream whose reply is still running, above which the reply is cancelled."""
    return _UNREAD_WHILE_OTHERS_WAIT if others_wait else _UNREAD_BYTES


class Phase(Enum):
    """The part of an exchange that a connection is in."""

    HEAD = auto()  # of a new connection, or of the next request once its first byte is there
    BODY = auto()
    ANSWER = auto()  # the request is complete, the response is not
    IDLE = auto()


class Pace:
    """Checks a least rate, from a byte count that is polled from time to time."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._moved_before = 0

    def is_too_slow(self, num_moved: int | None) -> bool:
        """`num_moved` is the count so far; None when no bytes are due."""
        now = monotonic()
        if num_moved is None:
            self._began = None
            return False
        if self._began is not None and now - self._began < _WINDOW_SECONDS:
            return False
        is_too_slow = self._began is not None and num_moved - self._moved_before < _WINDOW_BYTES
        self._began, self._moved_before = now, num_moved
        return is_too_slow


class Connection(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 protocol with time and size limits. `check` is called about once a second to enforce them."""

    def __init__(self, *args: Any, **more: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **more)
        self._phase, self._since = Phase.HEAD, monotonic()
        self._num_received = self._head_bytes = 0
        self._sending, self._reading = Pace(), Pace()
        self._is_last = False  # nothing that the client sends after this request is read

    @property
    def spare_rank(self) -> tuple[bool, float] | None:
        """How soon it makes way for a new connection, lowest first; None while a request is being answered.

        Those that have sent nothing of a request, or half a head, come before half-sent bodies, unread responses and
        streams without an end.
        """
        if self._phase is Phase.ANSWER:
            return (True, self._since) if self._is_endless else None
        return self._phase is Phase.BODY or self.transport.get_write_buffer_size() > 0, self._since

    @property
    def _is_endless(self) -> bool:
        """Whether what is being answered has no end by itself."""
        return bool(self.scope["state"].get(ENDS_WITH_SERVER))

    def check(self) -> None:
        seconds = monotonic() - self._since
        if self._reading.is_too_slow(self._left_to_read()):
            self.transport.abort()
        elif self.transport.is_closing():
            return
        elif self._phase is Phase.IDLE and seconds > IDLE_SECONDS:
            self.transport.close()
        elif self._phase is Phase.HEAD and seconds > _HEAD_SECONDS:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"The head of a request must come within {_HEAD_SECONDS} s.")
        elif self._sending.is_too_slow(self._received_of_body()):
            rate = _WINDOW_BYTES // _WINDOW_SECONDS
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"The body of a request must come with {rate} bytes/s.")

    def shutdown(self) -> None:
        """The server stops: it waits for replies, but not for streams that would never end."""
        super().shutdown()
        if self._phase is Phase.ANSWER and self._is_endless:
            self.transport.close()

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Beyond the limit nothing more is written, and from just below it on again.
        transport.set_write_buffer_limits(high=_UNREAD_BYTES, low=_UNREAD_BYTES)

    def data_received(self, data: bytes) -> None:
        if self._is_last:
            return
        self._num_received += len(data)
        if self._phase is Phase.IDLE:
            self._enter(Phase.HEAD)
        super().data_received(_without_upgrade(data) if self._phase is Phase.HEAD else data)
        if self._phase is Phase.HEAD:
            self._head_bytes += len(data)
            if self._head_bytes > _HEAD_BYTES and not self.transport.is_closing():
                limit = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
                self._refuse(limit, f"The head of a request may have {_HEAD_BYTES >> 10} KiB.")

    def eof_received(self) -> None:
        """The client has left: abort, since closing would first wait until it has read what is buffered."""
        if self._phase is Phase.ANSWER:
            self.transport.abort()

    # --- the parser's callbacks

    def on_message_begin(self) -> None:
        if self._phase is Phase.ANSWER or self.transport.get_write_buffer_size():
            self._ignore_what_follows()
        elif self._phase is not Phase.HEAD:
            self._enter(Phase.HEAD)
        super().on_message_begin()  # with a scope of its own

    def on_headers_complete(self) -> None:
        if not self._is_last:
            self._enter(Phase.BODY)
            self._take_host_of_target()
            self.scope["state"][NUM_UNREAD] = self.transport.get_write_buffer_size
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._is_last:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._is_last:
            self._enter(Phase.IDLE if self.cycle.response_complete else Phase.ANSWER)
            super().on_message_complete()

    def on_response_complete(self) -> None:
        if self._phase is Phase.ANSWER:  # else it was refused before its body was there
            self._enter(Phase.IDLE)
        super().on_response_complete()

    def _ignore_what_follows(self) -> None:
        """The client pipelines: it sent the next request before it read the last response.

        That would hide from us whether the client is still there, and hardly any client does it. So the connection is
        closed after the response, as HTTP allows; the client asks again on a new one.
        """
        self._is_last = True
        if self._phase is Phase.ANSWER:
            self.cycle.keep_alive = False
        else:
            self.transport.close()

    def _take_host_of_target(self) -> None:
        """`GET http://name/path`, as sent to proxies: that host overrides the Host header (RFC 9112, 3.2.2).

        uvicorn drops it, so it is put in place of the header, where the application looks for it.
        """
        if self.url.startswith(b"/"):
            return
        target = httptools.parse_url(self.url)
        if target.host:
            others = [(name, value) for name, value in self.headers if name != b"host"]
            self.headers[:] = [*others, (b"host", _authority(target.host, target.port))]

    def _enter(self, phase: Phase) -> None:
        self._phase, self._since = phase, monotonic()
        self._head_bytes = 0

    def _received_of_body(self) -> int | None:
        """Bytes received while a body is due; None else, and while reading is paused by the application."""
        return self._num_received if self._phase is Phase.BODY and not self.flow.read_paused else None

    def _left_to_read(self) -> int | None:
        """Unread bytes of a complete response, negated so that the count grows; None while more is written."""
        num_bytes = self.transport.get_write_buffer_size()
        is_final = self._phase is not Phase.ANSWER or self.flow.write_paused or self.transport.is_closing()
        return -num_bytes if num_bytes and is_final else None

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """Answer with an error and close; without an answer if nothing was received, or a response has begun."""
        if _refusals.take() is not None:
            logger.info("a connection was refused with %d: %s", status.value, message)
        has_begun = self._phase is Phase.BODY and self.cycle.response_started
        if self._num_received and not has_begun:
            head = f"HTTP/1.1 {status.value} {status.phrase}\r\nconnection: close\r\ncontent-type: text/plain\r\n"
            self.transport.write(f"{head}content-length: {len(message)}\r\n\r\n{message}".encode())
        self.transport.close()


def _without_upgrade(data: bytes) -> bytes:
    """The first bytes of a request without the wish for another protocol, which a server may ignore.

    Java's HttpClient asks for HTTP/2 with every request over plain HTTP; httptools would skip the body of such a one.
    """
    end = data.find(b"\r\n\r\n")
    wish = _UPGRADE.search(data, 0, end if end >= 0 else len(data))
    return data if wish is None else data[: wish.start()] + b"\r\nnot-upgraded:" + data[wish.end() :]


def _authority(host: bytes, port: int | None) -> bytes:
    name = b"[%b]" % host if b":" in host else host
    return name if port is None else b"%b:%d" % (name, port)


class Acceptor:
    """Accepts connections up to a limit, and closes idle ones to make room.

    asyncio would accept all there are. When no file handle is free it retries as often as the backlog is long, with a
    traceback each: 2,048 a second. Here the first failure ends the attempt, and the server's next tick tries again.

    At the limit, connections without a complete request are closed, the longest waiting first: idle clients lose
    nothing, and half-sent requests hold up nobody. When all connections are being answered, new ones wait in the
    kernel's backlog, which costs no handle. They get no 503: the queue of requests is shorter than the limit and
    refuses by itself.
    """

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[[], Connection],
        connections: Collection[object],
        limit: int,
    ) -> None:
        self._listener, self._make, self._limit = listener, make, limit
        self._connections = connections
        self._arriving: dict[Connection, asyncio.Task[None]] = {}  # accepted, but not yet among the connections
        self._loop = asyncio.get_running_loop()
        self._is_paused = True
        self._warned: float | None = None
        listener.setblocking(False)

    def resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._loop.add_reader(self._listener, self._accept_some)

    def pause(self) -> None:
        self._is_paused = True
        self._loop.remove_reader(self._listener)

    def _accept_some(self) -> None:
        """Accepts as many connections as there is room for. Called by the event loop when one waits."""
        room = self._limit - len({*self._connections, *self._arriving})
        if room <= 0 and not self._make_room(1):
            self.pause()
        # A connection that was closed to make room is gone when the loop calls again.
        for _ in range(min(room, _ACCEPTED_AT_ONCE)):
            try:
                accepted, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._back_off(error)
                return
            self._connect(accepted)

    def _connect(self, accepted: socket.socket) -> None:
        connection = self._make()
        self._arriving[connection] = self._loop.create_task(self._arrive(connection, accepted))

    async def _arrive(self, connection: Connection, accepted: socket.socket) -> None:
        try:
            accepted.setblocking(False)
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
            await self._loop.connect_accepted_socket(lambda: connection, accepted)
        except OSError:  # the client has left already
            accepted.close()
        finally:
            del self._arriving[connection]

    def _make_room(self, num_wanted: int) -> int:
        """Close up to `num_wanted` connections that are spare. Returns how many were closed."""
        known = [connection for connection in self._connections if isinstance(connection, Connection)]
        ranked = [(rank, id(connection), connection) for connection in known if (rank := connection.spare_rank)]
        spare = heapq.nsmallest(num_wanted, ranked)
        for _, _, connection in spare:
            connection.transport.abort()
        return len(spare)

    def _back_off(self, error: OSError) -> None:
        self.pause()
        num_closed = self._make_room(_MADE_ROOM)
        now = monotonic()
        if self._warned is None or now - self._warned > _SILENT_SECONDS:
            self._warned = now
            logger.warning(
                "cannot take new connections (%s), with %d open, of which %d were closed: raise the limit of open files"
                " (ulimit -n), or start the server with a smaller --queue",
                error.strerror,
                len(self._connections),
                num_closed,
            )


def connection_limit(settings: Settings, handles_each: int) -> int:
    """Room for all requests that run or wait, and some more; less if file handles are short."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _wanted(settings)
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(_MIN_CONNECTIONS, min(wanted, (soft - _OWN_HANDLES) // handles_each))


def raise_handle_limit(settings: Settings, handles_each: int = 1) -> None:
    """Raise the limit of open files as far as connections need and the system allows: macOS starts with 256."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = handles_each * _wanted(settings) + _OWN_HANDLES
    if hard != resource.RLIM_INFINITY:
        needed = min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < needed:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _wanted(settings: Settings) -> int:
    return settings.queue + settings.slots + _BEYOND_QUEUE
