"""The servers that Ray runs, by URL, and how busy each is: the servers and the routers of one application meet here.

Routers take requests past Ray, straight to the servers. So they tell how many, and Ray scales by that.
"""

import time
from collections.abc import Callable, Mapping

from msgspec import Struct

EXPIRY_S = 10.0  # of whoever tells nothing: ten checks of a server's health


class Work(Struct, frozen=True):
    """The load of one server: requests that are on their way, and seconds of prompts to be prefilled."""

    requests: float = 0
    read_s: float = 0.0


class Roster:
    """One per application. If it is started again, it knows everyone after the next check of their health."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._servers: dict[str, float] = {}  # by URL: when it was heard of
        self._leaving: set[str] = set()
        self._routers: dict[str, tuple[float, Mapping[str, Work]]] = {}  # by id: the same, and its work by URL

    async def enter(self, url: str) -> None:
        """A server runs."""
        self._servers[url] = self._clock()

    async def leave(self, url: str) -> Work:
        """A server is to stop, and takes no more requests; returns what it has still to do."""
        self._leaving.add(url)
        return await self.work(url)

    async def exchange(self, router: str, work: Mapping[str, Work]) -> tuple[list[str], list[str]]:
        """A router tells what it knows of each server; returns the servers, and those of them that are to stop."""
        self._routers[router] = self._clock(), work
        oldest = self._clock() - EXPIRY_S
        self._servers = {url: at for url, at in self._servers.items() if at > oldest}
        self._routers = {each: told for each, told in self._routers.items() if told[0] > oldest}
        self._leaving &= self._servers.keys()
        return [*self._servers], [*self._leaving]

    async def work(self, url: str) -> Work:
        """Each router counts its own requests; of the prompts that wait at a server all know the same."""
        told = [work[url] for _, work in self._routers.values() if url in work]
        return Work(sum(each.requests for each in told), max((each.read_s for each in told), default=0.0))
