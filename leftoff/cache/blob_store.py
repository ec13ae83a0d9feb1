"""Where pages and snapshots are kept outside of the process: what the disk tier asks of it.

A shelf writes behind: `put` returns at once, and what was put can be had from then on. It keeps within no budget and
chooses nothing: the tier does. It says in which order things happen: what was removed before something was put is gone
from the medium before the other is written. Nothing here blocks the engine's thread but waiting for a future.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from leftoff.engine.memory.base import Page, Snapshot
from leftoff.types import Tokens

Item = Page | Snapshot


@dataclass(eq=False, slots=True)
class Record:
    """An item on the shelf, as `Page.data` or `Snapshot.data` of the disk tier: its name and its bytes there."""

    name: str
    nbytes: int


@dataclass(frozen=True)
class StoredPath:
    """What an earlier process left of one path: pages and snapshots whose data are records, rising by position.

    `age_s` tells for each how long ago it was used last.
    """

    namespace: str
    tokens: Tokens
    items: Sequence[Item]
    ages_s: Sequence[float]


class BlobStore(Protocol):
    """All methods but the futures' work return quickly. `put`, `remove`, `settle` and `recall` belong to one thread."""

    @property
    def overhead_bytes(self) -> int:
        """What a record has beyond the bytes of its item."""
        ...

    def recall(self) -> Iterable[StoredPath]:
        """Everything that an earlier process has left, each item once. To be called once, before anything is put."""
        ...

    def put(self, item: Item, namespace: str, tokens: Tokens) -> Record | None:
        """Keeps an item of the path `tokens`, which reaches at least to the item's end and does not change.

        None if it cannot be kept now: the medium fails, or is too far behind.
        """
        ...

    def get(self, records: Sequence[Record]) -> list[Future[Item]]:
        """The items again, verified, in the order of their records. A future raises `BlobError` if its item is lost."""
        ...

    def remove(self, record: Record) -> None: ...
    def used(self, records: Iterable[Record]) -> None:
        """They were of use: remembered for those who come after, when there is time."""
        ...

    def hold_back(self, *, is_busy: bool) -> None:
        """Whether the engine is busy: then what can wait waits, and leaves it the cores."""
        ...

    def settle(self) -> list[Record]:
        """Records that could not be written after all, or were found damaged: they hold nothing any more."""
        ...

    def flush(self, timeout_s: float) -> bool:
        """Waits until everything is written. False if the time was too short."""
        ...

    def close(self, timeout_s: float) -> None: ...
