"""What waiting requests need from disk, brought before their turn."""

from collections.abc import Callable

from leftoff.cache.cache import Cache
from leftoff.cache.fetch import Fetch
from leftoff.scheduler.request import Request


class Fetches:
    """Belongs to the engine's thread, but for `is_coming`. `wake` is called when something has come."""

    def __init__(self, cache: Cache, wake: Callable[[], None]) -> None:
        self._cache = cache
        self._wake = wake
        self._begun: dict[Request, Fetch | None] = {}  # None if it needs nothing
        self._put_off: set[Request] = set()

    def begin(self, request: Request) -> None:
        """Unless there are more than slots already: what is brought before its time fills the memory."""
        if request in self._begun:
            return
        if sum(fetch is not None for fetch in self._begun.values()) > len(self._cache.sequences.idle_slots):
            self._put_off.add(request)
            return
        self._put_off.discard(request)
        fetch = self._begun[request] = self._cache.fetch(request.prompt, request.namespace)
        if fetch is not None:
            fetch.when_done(self._wake)

    def is_coming(self, request: Request) -> bool:
        """Part of what it resumes from is on its way, or will be."""
        fetch = self._begun.get(request)
        return request in self._put_off or (fetch is not None and not fetch.is_done)

    def brought(self, request: Request) -> Fetch | None:
        return self._begun.get(request)

    def forget(self, request: Request) -> None:
        self._begun.pop(request, None)
        self._put_off.discard(request)
