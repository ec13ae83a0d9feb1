"""The protocol between a tier below RAM and the medium it writes to. `leftoff/blobs/store.py` implements it.

A blob store writes behind: `put` returns at once, and the item can be had from then on. It has no budget and chooses
nothing; the tier does, by a rank: the highest is written first, and when more is put than can wait, the lowest is given
up. What was removed before an item was put is gone from the medium before that item is written. Nothing here blocks the
engine's thread but waiting for a future.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, Protocol

from leftoff.cache.costs import TierCosts
from leftoff.cache.report import Origin
from leftoff.engine.memory.base import Page, Snapshot
from leftoff.types import Tokens

Item = Page | Snapshot


@dataclass(eq=False, slots=True)
class Record:
    """A stored item: its name and its bytes on the medium. The `data` of pages and snapshots in the tiers below RAM."""

    name: str
    nbytes: int
    store: "BlobStore" = field(repr=False)  # that it can be had from


class Worth(IntEnum):
    """How likely later prompts need a resume point, and with it the pages that lead to it."""

    MIDDLE = 0  # of a conversation: a prompt resumes there only if something after it was changed
    END = 1  # of a conversation: its next prompt resumes there
    SHARED = 2  # several conversations have gone on from there


class Rank(NamedTuple):
    """The order of writing, highest first: by worth, then by last use. Items that were put together have one rank."""

    worth: Worth = Worth.MIDDLE
    last_used: float = 0.0


LOWEST = Rank()


@dataclass(frozen=True)
class StoredPath:
    """Pages and snapshots that a medium has of one path, by position; their data are records.

    `ages_s` tells for each how long ago it was used last.
    """

    namespace: str
    tokens: Tokens
    items: Sequence[Item]
    ages_s: Sequence[float]


@dataclass(frozen=True, eq=False)
class Wanted:
    """A prompt to look up: its beginning up to `known` is here already."""

    namespace: str
    tokens: Tokens
    known: int


class BlobStore(Protocol):
    """All methods return quickly. `put`, `remove`, `take_lost` and `stored_paths` belong to one thread."""

    @property
    def origin(self) -> Origin:
        """The name of this store in reuse reports."""
        ...

    @property
    def costs(self) -> TierCosts:
        """The measured cost of fetching from it; a guess until something was fetched."""
        ...

    @property
    def is_shared(self) -> bool:
        """Other machines write to the medium as well. Then `stored_paths` is empty: prompts are searched for."""
        ...

    @property
    def overhead_bytes(self) -> int:
        """Bytes of a record beyond those of its item."""
        ...

    @property
    def written_bytes(self) -> int:
        """Bytes written to the medium since the store was opened."""
        ...

    @property
    def left_bytes(self) -> float:
        """How many more bytes `put` takes today; without a limit they are infinite."""
        ...

    @property
    def num_waiting(self) -> int:
        """How many items are not written yet."""
        ...

    def stored_paths(self) -> Iterable[StoredPath]:
        """Everything that earlier processes left, each item once. To be called once, before anything is put."""
        ...

    def search(self, wanted: Wanted) -> "Future[StoredPath | None]":
        """Looks a prompt up in a medium that is shared.

        The answer always comes, if only that nothing was found, or that the medium failed.
        """
        ...

    def put(self, item: Item, namespace: str, tokens: Tokens, rank: Rank = LOWEST) -> Record | None:
        """Stores an item of the path `tokens`, which reaches at least to the item's end and must not change.

        None if it cannot be stored now: the medium fails, or its queue is full of higher ranks.
        """
        ...

    def promote(self, records: Iterable[Record], rank: Rank) -> None:
        """Raises the rank of those that still wait to be written."""
        ...

    def is_waiting(self, record: Record) -> bool:
        """The record is not written yet."""
        ...

    def get(self, records: Sequence[Record]) -> list[Future[Item]]:
        """Reads items back, verified, in the order of `records`. A future raises `BlobError` if its item is lost."""
        ...

    def release(self, record: Record) -> None:
        """The tier needs it no longer. It is not written if it still waits; what machines share stays stored."""
        ...

    def remove(self, record: Record) -> None:
        """Releases it, and removes it from the medium in any case."""
        ...

    def clear(self, is_meant: Callable[[str], bool]) -> "Future[None]":
        """Deletes what the medium has of the namespaces that are meant, by whatever machine, beyond recovery.

        The tier has released its records of them before. The future raises if the medium fails.
        """
        ...

    def record_hits(self, records: Iterable[Record]) -> None:
        """Records a hit; persisted lazily, for eviction after a restart."""
        ...

    def hold_back(self, *, is_busy: bool) -> None:
        """While the engine is busy, writing waits as long as it can: it would take cores from the engine."""
        ...

    def take_lost(self) -> list[Record]:
        """Records lost since the last call: they could not be written after all, or were found damaged."""
        ...

    def close(self, timeout_s: float) -> None: ...


def store_of(item: Item | None) -> BlobStore | None:
    """The blob store from which an item must be fetched before it can be loaded; None if it is in RAM, or nowhere."""
    return item.data.store if item is not None and isinstance(item.data, Record) else None
