"""The storage under a tier: files with a sqlite index (`leftoff/disk`), objects with a Redis index (`leftoff/store`).

To add a medium, implement `Medium`; `docs/add-a-tier.md` goes through it.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from leftoff.blobs.blob import Blob, Write
from leftoff.cache.blob_store import Item, Wanted, Worth
from leftoff.engine.errors import BlobError
from leftoff.engine.memory.arena import Arena
from leftoff.types import Tokens


class GoneError(BlobError):
    """The medium works, but has the blob no more: another machine has removed it, and nothing is wrong."""


class PathBlobs(NamedTuple):
    """Blobs on the path of tokens."""

    namespace: str
    tokens: Tokens
    blobs: Sequence[Blob]


@dataclass(frozen=True)
class Use:
    """A blob that was used since the medium was told last: how often, and when it was the last time."""

    blob: Blob
    worth: Worth
    last_used: float
    num_hits: int


class Deletion(NamedTuple):
    """The deletion of namespaces from a medium by a thread of its own, and the future of whoever waits for it."""

    is_meant: Callable[[str], bool]
    done: "Future[None]"


class Medium(Protocol):
    """The blobs of one model. All calls block, and may raise any of `problems`; those of the writer come one by one."""

    @property
    def problems(self) -> tuple[type[Exception], ...]: ...
    @property
    def bytes_per_ms(self) -> float | None:
        """The rate at which it was seen to deliver; None before anything was measured."""
        ...

    @property
    def call_ms(self) -> float | None:
        """How long it takes until it begins to answer; None where that is not measured."""
        ...

    @property
    def left_bytes(self) -> float:
        """How many more bytes it takes today; without a limit they are infinite."""
        ...

    def left_paths(self) -> Iterable[PathBlobs]:
        """All that earlier processes left, each blob once. Of a medium that is shared, nothing."""
        ...

    def read(self, blob: Blob, arena: Arena) -> Item:
        """Reads and verifies. `BlobError` if it is damaged or gone for good. Any number of threads may call it."""
        ...

    # --- called by the writer

    def write(self, writes: Sequence[Write]) -> int:
        """Writes all, or raises. When it returns they survive a loss of power. Returns the bytes that were written."""
        ...

    def remove(self, blobs: Sequence[Blob]) -> None: ...
    def clear(self, is_meant: Callable[[str], bool]) -> None:
        """Deletes the namespaces that are meant, whoever has written them, so that none of it can be recovered."""
        ...

    def note(self, uses: Sequence[Use]) -> Sequence[Blob]:
        """Now and then: persists uses, and does chores. Returns those of the blobs that it has no more."""
        ...

    def failed(self, problem: Exception) -> None:
        """Reports a problem, or a mistake of ours; nothing is written any more until `recover` succeeds."""
        ...

    def recover(self, written: Collection[str]) -> Collection[str]:
        """Tries to work again after a problem. Returns the names of those of the `written` blobs that are gone.

        What is there can be removed from then on; whether anything can be written, `check_room` tells.
        """
        ...

    def check_room(self) -> None:
        """Raises if there is still no room for what could not be written."""
        ...

    def close(self) -> None: ...


class Sharing(Protocol):
    """The further calls of a medium that several machines write to."""

    def search(self, wanted: Wanted) -> "Future[PathBlobs | None]":
        """Looks a prompt up. The answer always comes."""
        ...
