"""What the tree keeps: resume points and pages, and what is known of their use."""

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING

from leftoff.cache.blob_store import Item, Record
from leftoff.engine.memory.base import Page, PagePart, Snapshot
from leftoff.types import Logits

if TYPE_CHECKING:
    from leftoff.cache.tree import Node


by_position = attrgetter("position")  # the order of points
by_start = attrgetter("start")  # the order of stretches


@dataclass(eq=False, slots=True)
class StoredPage:
    """A page, and the number of stretches of the tree that refer to it: it goes with the last one."""

    page: Page
    references: int = 0

    @property
    def nbytes(self) -> int:
        return self.page.nbytes


@dataclass(eq=False, slots=True)
class Stretch:
    """Positions [start, end) of a stored page, as one node of the tree refers to them."""

    stored: StoredPage
    start: int
    end: int

    def part(self, start: int, end: int) -> PagePart:
        return self.stored.page.part(max(start, self.start), min(end, self.end))


@dataclass(eq=False, slots=True, weakref_slot=True)
class ResumePoint:
    """A position from which a prompt can be resumed, and the unit of eviction.

    It holds the snapshot there. Attention needs none: there a point holds nothing and only marks the end of a page.
    `logits` are those after the last token: with them an identical prompt computes nothing. A pinned point is never
    evicted. A mark is known to be resumed from; the others stand between marks and are not worth a disk's time.
    """

    node: "Node"
    position: int
    snapshot: Snapshot | None = None
    logits: Logits | None = None
    is_durable: bool = False
    is_pinned: bool = False
    num_lives: int = 0  # sequences in the engine that go on from here
    row: int = field(default=-1, repr=False)  # its place in the ranking

    @property
    def nbytes(self) -> int:
        snapshot = self.snapshot.nbytes if self.snapshot else 0
        return snapshot + (self.logits.nbytes if self.logits is not None else 0)


def is_on_disk(item: Item | None) -> bool:
    """It must be fetched before it can be loaded."""
    return item is not None and isinstance(item.data, Record)
