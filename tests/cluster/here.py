"""Replicas and routers in this process, for tests of what they do. Those that kill one take `processes.py`."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

from leftoff.cluster.app import RouterApp
from leftoff.cluster.health import listed
from leftoff.config import Settings
from leftoff.disk.secret import new_secret
from leftoff.server.app import guards
from leftoff.server.http.origins import KnownHosts
from leftoff.server.server import GuardedServer
from tests.cli.here import served
from tests.cluster.processes import USUAL


@dataclass(frozen=True)
class Part:
    """A replica or a router that listens."""

    url: str
    close: Callable[[], None]


def replica(*flags: str, models: Sequence[str] = ()) -> Part:
    """`leftoff serve` with these models, or the one that comes with leftoff."""
    stack = ExitStack()
    first, *others = models or [""]
    return Part(stack.enter_context(served(*others, *USUAL, *flags, model=first)).url, stack.close)


def router(index: str = "", replicas: Sequence[str] = ()) -> Part:
    """`leftoff route` over what is in an index, or over these URLs."""
    stack = ExitStack()
    return Part(stack.enter_context(_routed(index, replicas)), stack.close)


@contextmanager
def _routed(index: str, replicas: Sequence[str]) -> Iterator[str]:
    settings = Settings(host="127.0.0.1", port=0)

    def make_app(addresses: KnownHosts) -> RouterApp:
        find_urls = listed(replicas) if replicas else None
        return RouterApp(index or None, find_urls, guards(settings, addresses, new_secret()), health_s=0.1)

    with closing(GuardedServer(make_app, settings, lifespan="on")) as server:
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            yield server.url
        finally:
            server.stop()
            thread.join()
