"""What lies around a point of a tree: the points before and after it, and the pages that only it needs."""

from bisect import bisect_left
from collections.abc import Iterator

from leftoff.cache.resume_point import ResumePoint, StoredPage, Stretch, by_position, by_start
from leftoff.cache.tree import Node


def index_of(point: ResumePoint) -> int:
    return bisect_left(point.node.points, point.position, key=by_position)


def gaps(node: Node, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of [start, end) that no stretch of the node covers."""
    first = max(0, bisect_left(node.stretches, start, key=by_start) - 1)
    for stretch in node.stretches[first:]:
        if stretch.start >= end:
            break
        if start < stretch.start:
            yield start, stretch.start
        start = max(start, stretch.end)
    if start < end:
        yield start, end


def point_before(point: ResumePoint) -> ResumePoint | None:
    """The point before it on its path."""
    index = index_of(point)
    if index:
        return point.node.points[index - 1]
    at = point.node.parent
    while at is not None and not at.points:
        at = at.parent
    return at.points[-1] if at is not None else None


def points_after(node: Node, index: int) -> Iterator[ResumePoint]:
    """The next points after `index`, one on each branch."""
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


def pages_behind(point: ResumePoint) -> Iterator[Stretch]:
    """The stretches that lead nowhere without it, given that it is the last of its branch."""
    node = point.node
    last = node.points[-2].position if len(node.points) > 1 else node.start
    while node.parent is not None:
        yield from node.stretches[bisect_left(node.stretches, last, key=by_start) :]
        if last > node.start or node.parent.num_live_children > 1:
            return
        node = node.parent
        last = node.points[-1].position if node.points else node.start


def freed_bytes(stretches: Iterator[Stretch]) -> int:
    """The pages to which nothing else refers."""
    counts: dict[StoredPage, int] = {}
    for stretch in stretches:
        counts[stretch.stored] = counts.get(stretch.stored, 0) + 1
    return sum(stored.nbytes for stored, count in counts.items() if stored.references == count)
