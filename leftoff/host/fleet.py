"""The fleet of a host, as the host sees it: who composes a server that shares its cache hands one in."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from leftoff.blobs.replies import MediumReplies
from leftoff.cache.blob_tier import TierSettings
from leftoff.chat.replies import ReplyStore
from leftoff.disk.tools.models import Pruned
from leftoff.engine.memory.arena import Arena
from leftoff.engine.memory.base import Memory
from leftoff.scheduler.gate import Readiness
from leftoff.scheduler.scheduler import Scheduler

_SHOWN_DIGITS = 8


def told_model(path: Path, fingerprint: str) -> str:
    """A model in what a fleet is told of it: `described` begins so."""
    return f"{path.stem} ({fingerprint[:_SHOWN_DIGITS]})"


class ModelState(Struct, frozen=True):
    """One of the models of a server, as others see it."""

    name: str
    aliases: tuple[str, ...] = ()  # its other names, patterns among them
    readiness: Readiness = Readiness()
    writes: bool = True  # else it is an encoder


@dataclass(frozen=True)
class Place:
    """Where hosts answer: a server with its id and its URL, and all its models as they are now, the first in front."""

    server: str
    url: str
    models: Callable[[], Sequence[ModelState]]


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

    def forget(self, model: Path, is_meant: Callable[[str], bool]) -> list[Pruned]:
        """Of a model that is not open, deletes what is stored for the namespaces that are meant. Blocks, and raises.

        Not to be joined for that.
        """
        ...

    def announce(
        self,
        place: Place,
        model: str,
        secret: bytes,
        call: Callable[[Callable[[], Any]], "Future[Any]"],
        scheduler: Scheduler,
    ) -> None:
        """Tells where this host answers, and from then on what it holds. `call` calls on the engine's thread."""
        ...

    def reachable(self) -> Mapping[str, bool]:
        """The parts of the fleet that this machine uses, by name, and whether each answers."""
        ...

    def drain(self) -> None:
        """Tells that no more requests are wanted."""
        ...

    def close(self) -> None:
        """Leaves the fleet, whether it was joined or not."""
        ...
