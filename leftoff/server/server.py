"""Runs the application on a socket: in the foreground for the command line, in a thread for tests and programs."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Literal
from urllib.parse import urlsplit

import uvicorn
from starlette.types import ASGIApp

from leftoff.config import Settings
from leftoff.errors import reason_of
from leftoff.host.host import ModelHost
from leftoff.server.app import build_app
from leftoff.server.garbage import full_passes_when_idle
from leftoff.server.hosts import Hosts
from leftoff.server.http.connection import IDLE_SECONDS, Acceptor, Connection, connection_limit, raise_handle_limit
from leftoff.server.http.origins import KnownHosts
from leftoff.setting import is_loopback

_BACKLOG = 2048
_STOP_SECONDS = 3
_TICKS_PER_SECOND = 10  # of uvicorn
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}


class GuardedServer(uvicorn.Server):
    """uvicorn's server with limits on the number and the idle time of connections, for a server and for a router.

    It listens as soon as it is made, so that its port is known and early connections are queued.
    """

    def __init__(
        self,
        make_app: Callable[[KnownHosts], ASGIApp],
        settings: Settings,
        listener: socket.socket | None = None,
        *,
        handles_each: int = 1,
        lifespan: Literal["on", "off"] = "off",
    ) -> None:
        """`make_app` gets the hosts that the server is known by. A connection takes so many file handles."""
        self._host = settings.host
        self._index = settings.index
        self._socket = listener or listen(settings.host, settings.port)
        self._max_connections = connection_limit(settings, handles_each)
        self._acceptors: list[Acceptor] = []
        advertised = [urlsplit(settings.advertise).netloc] if settings.advertise else []
        known = KnownHosts.of(settings.host, self._socket.getsockname()[0], [*settings.allowed_host, *advertised])
        config = uvicorn.Config(
            make_app(known),
            http=Connection,
            timeout_keep_alive=IDLE_SECONDS,
            log_config=None,
            access_log=False,
            ws="none",
            lifespan=lifespan,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_STOP_SECONDS,
        )
        super().__init__(config)

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    @property
    def url(self) -> str:
        """The URL for clients on this machine."""
        return url_of(self._host, self.port)

    @property
    def public_url(self) -> str:
        """The URL for other machines: where it listens on all addresses, by that which the index sees."""
        return url_of(address_towards(self._index) if self._host in _ANYWHERE else self._host, self.port)

    def stop(self) -> None:
        """Ends `run`, as a signal does; running requests then get a few seconds to end."""
        self.should_exit = True

    def close(self) -> None:
        self._socket.close()

    # --- called by uvicorn's `run`

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002
        await super().startup(sockets=[])  # it would accept by itself
        connections = self.server_state.connections
        self._acceptors = [Acceptor(self._socket, self._connection, connections, self._max_connections)]

    async def on_tick(self, counter: int) -> bool:
        for acceptor in self._acceptors:
            acceptor.resume()
        if counter % _TICKS_PER_SECOND == 0:
            for connection in [*self.server_state.connections]:
                assert isinstance(connection, Connection)
                connection.check()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002
        for acceptor in self._acceptors:
            acceptor.pause()
        await super().shutdown([self._socket])

    def _connection(self) -> Connection:
        return Connection(self.config, self.server_state, self.lifespan.state)


class Server(GuardedServer):
    """Serves hosts."""

    def __init__(self, hosts: Hosts, settings: Settings, listener: socket.socket | None = None) -> None:
        super().__init__(partial(build_app, hosts, settings), settings, listener)
        self._hosts = hosts

    async def on_tick(self, counter: int) -> bool:
        if counter == 0:  # uvicorn counts the ticks of a day
            self._hosts.log.log_spared()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for host in self._hosts:
            host.drain()
        await super().shutdown(sockets)


def address_towards(url: str) -> str:
    """The address of this machine on its way to that of a URL; the name of this machine, if that is where it is."""
    target = urlsplit(url)
    try:
        *_, there = socket.getaddrinfo(target.hostname, target.port or 1, type=socket.SOCK_DGRAM)[0]
        with socket.socket(socket.AF_INET6 if ":" in str(there[0]) else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(there)  # sends nothing
            address = str(probe.getsockname()[0])
    except OSError:
        return socket.gethostname()
    return socket.gethostname() if is_loopback(address) else address


def url_of(host: str, port: int) -> str:
    """The URL of a server that listens there, for clients on this machine."""
    name = _ANYWHERE.get(host) or (f"[{host}]" if ":" in host else host)
    return f"http://{name}:{port}"


def run(
    hosts: Hosts,
    settings: Settings,
    on_ready: Callable[[str], None],
    listener: socket.socket | None = None,
) -> None:
    """Serves until a signal comes. `on_ready` gets the URL once the server listens, on `listener` if there is one."""
    raise_handle_limit(settings)

    def is_idle() -> bool:
        return not any(host.scheduler.is_busy for host in hosts)

    with closing(Server(hosts, settings, listener)) as server, full_passes_when_idle(is_idle):
        hosts.announce(server.public_url)
        on_ready(server.url)
        server.run()


@contextmanager
def serving(served: ModelHost | Hosts) -> Iterator[str]:
    """A server in a thread, on a free local port, for the length of a `with` block. Yields its URL."""
    hosts = served if isinstance(served, Hosts) else Hosts(served)
    with closing(Server(hosts, replace(hosts.first.settings, host="127.0.0.1", port=0))) as server:
        thread = threading.Thread(target=server.run, name="leftoff-http", daemon=True)
        thread.start()
        hosts.announce(server.url)
        try:
            yield server.url
        finally:
            server.stop()
            thread.join()


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket. Raises an error that names the address if it cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # By its protocol asyncio tells that this is TCP and sends without delay; left out, every reply waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        problem = f"cannot listen on {host}, port {port} ({reason_of(error)})"
        raise OSError(f"{problem}: choose another --host or --port; 0 takes a free one") from error
    return listener
