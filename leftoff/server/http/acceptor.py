"""Accepts connections up to a limit, and closes idle ones to make room.

asyncio would accept all there are. When no file handle is free it retries as often as the backlog is long, with a
traceback each: 2,048 a second. Here the first failure ends the attempt, and the server's next tick tries again.

At the limit, connections without a complete request are closed, the longest waiting first: idle clients lose nothing,
and half-sent requests hold up nobody. When all connections are being answered, new ones wait in the kernel's backlog,
which costs no handle. They get no 503: the queue of requests is shorter than the limit and refuses by itself.
"""

import asyncio
import heapq
import logging
import resource
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from time import monotonic

from leftoff.config import Settings
from leftoff.server.http.connection import Connection

logger = logging.getLogger(__name__)

_BEYOND_QUEUE = 128  # connections that are idle, or whose request needs no slot, such as /health
_OWN_HANDLES = 64  # for the disk cache, the log, a GPU's driver
_LEAST_CONNECTIONS = 8
_ACCEPTED_AT_ONCE = 64  # before the event loop does other work
_MADE_ROOM = 8  # connections to close when no handle is free: the server needs some for itself too
_SEND_BUFFER_BYTES = 64 << 10  # else the kernel buffers 4 MB for a client that does not read
_SILENT_SECONDS = 60  # between two equal log lines


class Acceptor:
    """Accepts from one listener, on the event loop. `resume` is called several times a second."""

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
        """Called by the event loop when a connection waits."""
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


def connection_limit(settings: Settings) -> int:
    """Room for all requests that run or wait, and some more; less if file handles are short."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _wanted(settings)
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(_LEAST_CONNECTIONS, min(wanted, soft - _OWN_HANDLES))


def raise_handle_limit(settings: Settings) -> None:
    """Raise the limit of open files as far as connections need and the system allows: macOS starts with 256."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _wanted(settings) + _OWN_HANDLES
    if hard != resource.RLIM_INFINITY:
        needed = min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < needed:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _wanted(settings: Settings) -> int:
    return settings.queue + settings.slots + _BEYOND_QUEUE
