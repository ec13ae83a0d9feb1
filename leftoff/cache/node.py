"""The nodes of a tree, the data they hold (resume points, and stretches of pages), and a match: a path of nodes."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np

from leftoff.engine.memory.base import Page, Snapshot, WindowPage
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
        """The bytes of snapshot and logits, without the window pages, which other points may share."""
        snapshot = self.snapshot.data.nbytes if self.snapshot else 0
        return snapshot + (self.logits.nbytes if self.logits is not None else 0)

    @property
    def window(self) -> tuple[WindowPage, ...]:
        return self.snapshot.window if self.snapshot is not None else ()

    @property
    def total_bytes(self) -> int:
        return self.nbytes + sum(page.nbytes for page in self.window)


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


@dataclass(frozen=True, slots=True)
class Match:
    """The longest known prefix of a sequence: `path` without the root; the last node may match only in part."""

    path: tuple[Node, ...]
    length: int

    @property
    def leaves_midway(self) -> bool:
        """The tree goes on differently after `length`: the prefix is shared with another sequence."""
        return bool(self.path) and (self.length < self.path[-1].end or bool(self.path[-1].children))

    @property
    def continuation(self) -> Tokens:
        """The tokens that follow in the tree, down to a leaf: of several branches, on the one used last."""
        parts: list[Tokens] = []
        node = self.path[-1] if self.path else None
        if node is not None and self.length < node.end:
            parts.append(node.tokens[self.length - node.start :])
        while node is not None and node.children:
            node = max(node.children.values(), key=lambda child: child.last_used)
            parts.append(node.tokens)
        return np.concatenate(parts) if parts else np.empty(0, np.int32)

    def points(self) -> Iterator[ResumePoint]:
        """The resume points within the match, by position."""
        for node in self.path:
            yield from self._points_of(node)

    def _points_of(self, node: Node) -> list[ResumePoint]:
        if self.length >= node.end:
            return node.points
        return node.points[: bisect_right(node.points, self.length, key=by_position)]

    def node_at(self, position: int) -> Node | None:
        """The node of the path that a resume point at `position` belongs to."""
        return next((node for node in self.path if node.start < position <= node.end), None)

    def point_at(self, position: int) -> ResumePoint | None:
        node = self.node_at(position)
        return node.point_at(position) if node is not None else None

    def last_point(self) -> ResumePoint | None:
        return next((point for node in reversed(self.path) for point in self._points_of(node)[-1:]), None)

    def last_point_before(self, position: int) -> ResumePoint | None:
        return Match(self.path, min(self.length, position - 1)).last_point()

    def page_at(self, start: int, end: int) -> Page | None:
        """The page whose stretch covers exactly [start, end)."""
        node = self.node_at(start + 1)
        stretch = node.stretch_at(start) if node is not None else None
        return stretch.stored.page if stretch is not None and stretch.end == end else None

    def num_covered(self, start: int = 0) -> int:
        """How many of the matched tokens are covered by pages, from `start` on."""
        spans = ((max(start, stretch.start), min(stretch.end, self.length)) for stretch in self.stretches())
        return sum(max(0, last - first) for first, last in spans)

    def stretches(self) -> Iterator[Stretch]:
        """The stretches that begin within the match, by position."""
        for node in self.path:
            stop = bisect_left(node.stretches, self.length, key=by_start)
            yield from node.stretches[:stop]


def index_of(point: ResumePoint) -> int:
    """The place of a resume point among those of its node."""
    return bisect_left(point.node.points, point.position, key=by_position)


def point_before(point: ResumePoint) -> ResumePoint | None:
    """The resume point before this one on its path."""
    index = index_of(point)
    if index:
        return point.node.points[index - 1]
    at = point.node.parent
    while at is not None and not at.points:
        at = at.parent
    return at.points[-1] if at is not None else None


def points_after(node: Node, index: int) -> Iterator[ResumePoint]:
    """The next resume points after the one at `index` of a node, one on each branch."""
    if index + 1 < len(node.points):
        yield node.points[index + 1]
        return
    waiting = list(node.children.values())
    while waiting:
        child = waiting.pop()
        if child.points:
            yield child.points[0]
        elif child.is_live:
            waiting.extend(child.children.values())


def pages_up_to(point: ResumePoint) -> Iterator[Stretch]:
    """The stretches that nothing but this point needs, if it is the last of its branch."""
    node = point.node
    last = node.points[-2].position if len(node.points) > 1 else node.start
    while node.parent is not None:
        yield from node.stretches[bisect_left(node.stretches, last, key=by_start) :]
        if last > node.start or node.parent.num_live_children > 1:
            return
        node = node.parent
        last = node.points[-1].position if node.points else node.start


def gaps(node: Node, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of [start, end) that no page covers in this node."""
    first = max(0, bisect_left(node.stretches, start, key=by_start) - 1)
    for stretch in node.stretches[first:]:
        if stretch.start >= end:
            break
        if start < stretch.start:
            yield start, stretch.start
        start = max(start, stretch.end)
    if start < end:
        yield start, end


def freed_bytes(stretches: Iterator[Stretch]) -> int:
    """The bytes of the pages to which only these stretches refer."""
    counts: dict[StoredPage, int] = {}
    for stretch in stretches:
        counts[stretch.stored] = counts.get(stretch.stored, 0) + 1
    return sum(stored.nbytes for stored, count in counts.items() if stored.references == count)
