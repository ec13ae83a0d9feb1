"""The fleet of a host, as the host sees it: who composes a server that shares its cache hands one in."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from leftoff.blobs.replies import MediumReplies
from leftoff.cache.blob_tier import TierSettings
from leftoff.chat.replies import ReplyStore
from leftoff.engine.memory.arena import Arena
from leftoff.engine.memory.base import Memory
from leftoff.scheduler.scheduler import Scheduler


class Fleet(Protocol):
    """Other machines with the same model: a tier, remembered replies and a secret that are shared with them."""

    def join(self, memory: Memory, described: str) -> None:
        """Comes first, once the engine is loaded and its fingerprint is known."""
        ...

    def open_store(self, arena: Arena, *, queue_bytes: int, view_bytes: int) -> TierSettings | None:
        """The shared tier, if the fleet has one."""
        ...

    def secret(self, own: bytes) -> bytes:
        """The secret that all of the fleet hash the names of tenants with. The first member gives its own."""
        ...

    def replies(self, own: MediumReplies | None) -> ReplyStore:
        """Remembered replies of the fleet, and before them those of this machine."""
        ...

    def announce(
        self,
        url: str,
        model: str,
        secret: bytes,
        call: Callable[[Callable[[], Any]], "Future[Any]"],
        scheduler: Scheduler,
    ) -> None:
        """Tells at which URL this host answers, and from then on what it holds. `call` calls on the engine's thread."""
        ...

    def drain(self) -> None:
        """Tells that no more requests are wanted."""
        ...

    def close(self) -> None: ...
