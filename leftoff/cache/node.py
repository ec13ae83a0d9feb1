"""The nodes of a tree, and the data they hold: resume points, and stretches of pages."""

from bisect import bisect_left
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np

from leftoff.engine.memory.base import Page, Snapshot
from leftoff.types import Logits, Tokens

WIDTH = 4  # bytes per token
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


@dataclass(eq=False, slots=True)
class Node:
    """The tokens [start, end) of a path, after those of its parent."""

    parent: "Node | None"
    start: int
    key: bytes
    children: dict[bytes, "Node"] = field(default_factory=dict)
    points: list[ResumePoint] = field(default_factory=list)  # by position, in (start, end]
    stretches: list[Stretch] = field(default_factory=list)  # by start, within [start, end), not overlapping
    last_used: float = 0.0
    is_live: bool = False  # it holds points or pages, or a node below does
    num_live_children: int = 0
    lost_until: int = 0  # a point up to here was evicted
    end: int = field(init=False)  # not a property: it is read at every step of a match

    def __post_init__(self) -> None:
        self.end = self.start + len(self.key) // WIDTH

    @property
    def tokens(self) -> Tokens:
        return np.frombuffer(self.key, np.int32)

    @property
    def is_leaf(self) -> bool:
        return not self.children

    def point_at(self, position: int) -> ResumePoint | None:
        index = bisect_left(self.points, position, key=by_position)
        return self.points[index] if index < len(self.points) and self.points[index].position == position else None

    def stretch_at(self, start: int) -> Stretch | None:
        index = bisect_left(self.stretches, start, key=by_start)
        return self.stretches[index] if index < len(self.stretches) and self.stretches[index].start == start else None

    @property
    def holds_data(self) -> bool:
        return bool(self.points or self.stretches)

    def update_liveness(self) -> None:
        """To be called after points or stretches were added or removed."""
        at: Node | None = self
        while at is not None and at.is_live != (at.holds_data or at.num_live_children > 0):
            at.is_live = not at.is_live
            if at.parent is not None:
                at.parent.num_live_children += 1 if at.is_live else -1
            at = at.parent
