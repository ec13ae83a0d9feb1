"""The data of a tree: resume points, and stretches of pages."""

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING

from leftoff.engine.memory.base import Page, Snapshot
from leftoff.types import Logits

if TYPE_CHECKING:
    from leftoff.cache.tree import Node


by_position = attrgetter("position")  # the order of resume points
by_start = attrgetter("start")  # the order of stretches


@dataclass(eq=False, slots=True)
class StoredPage:
    """A page and the number of stretches that refer to it. Its bytes are released with the last one."""

    page: Page
    references: int = 0

    @property
    def nbytes(self) -> int:
        return self.page.nbytes


@dataclass(eq=False, slots=True)
class Stretch:
    """Positions [start, end) of a stored page, covered in one node. A page may span several nodes."""

    stored: StoredPage
    start: int
    end: int


@dataclass(eq=False, slots=True, weakref_slot=True)
class ResumePoint:
    """A position from which prefill can be resumed, and the unit of eviction.

    It holds the snapshot of that position. Models of attention alone need none: there it only marks the end of a page.
    `logits` are those after the last token: with them, an identical prompt needs no prefill at all.
    """

    node: "Node"
    position: int
    snapshot: Snapshot | None = None
    logits: Logits | None = None
    is_durable: bool = False  # others are known to resume here: worth writing to disk
    is_pinned: bool = False  # never evicted
    num_sequences: int = 0  # sequences in the engine that go on from here
    row: int = field(default=-1, repr=False)  # in the ranking's table

    @property
    def nbytes(self) -> int:
        snapshot = self.snapshot.nbytes if self.snapshot else 0
        return snapshot + (self.logits.nbytes if self.logits is not None else 0)
