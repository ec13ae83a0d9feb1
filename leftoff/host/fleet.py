"""What a host needs of a fleet: `cluster/` implements it, and a server that shares its cache hands it to its hosts."""

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

SHOWN_DIGITS = 8  # of a fingerprint


def model_label(path: Path, fingerprint: str) -> str:
    """`qwen3 (1a2b3c4d)`: the name of a model with the beginning of its fingerprint, as `described` begins."""
    return f"{path.stem} ({fingerprint[:SHOWN_DIGITS]})"


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
        """Called first, once the engine is loaded and its fingerprint is known."""
        ...

    def open_store(self, arena: Arena, *, queue_bytes: int, view_bytes: int) -> TierSettings | None:
        """The shared tier, if the fleet has one."""
        ...

    def secret(self, own: bytes) -> bytes:
        """The secret that all of the fleet hash the names of tenants with. The first member gives its own."""
        ...

    def replies(self, own: MediumReplies | None) -> ReplyStore:
        """Where replies are remembered: on this machine, and then in the fleet."""
        ...

    def forget(self, model: Path, is_meant: Callable[[str], bool]) -> list[Pruned]:
        """Deletes what is stored of a model that is not open, for the namespaces that are meant. Blocks, and raises.

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
