"""What lies around an entry of a tree: the entries before and after it, and the pages that only it needs."""

from bisect import bisect_left
from collections.abc import Iterator

from leftoff.cache.entry import Entry, StoredPage, Stretch, by_position, by_start
from leftoff.cache.tree import Node


def index_of(entry: Entry) -> int:
    return bisect_left(entry.node.entries, entry.position, key=by_position)


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


def entry_before(entry: Entry) -> Entry | None:
    """The entry before it on its path."""
    index = index_of(entry)
    if index:
        return entry.node.entries[index - 1]
    at = entry.node.parent
    while at is not None and not at.entries:
        at = at.parent
    return at.entries[-1] if at is not None else None


def entries_after(node: Node, index: int) -> Iterator[Entry]:
    """The next entries after `index`, one on each branch."""
    if index + 1 < len(node.entries):
        yield node.entries[index + 1]
        return
    waiting = list(node.children.values())
    while waiting:
        child = waiting.pop()
        if child.entries:
            yield child.entries[0]
        elif child.is_live:
            waiting.extend(child.children.values())


def pages_behind(entry: Entry) -> Iterator[Stretch]:
    """The stretches that lead nowhere without it, given that it is the last of its branch."""
    node = entry.node
    last = node.entries[-2].position if len(node.entries) > 1 else node.start
    while node.parent is not None:
        yield from node.stretches[bisect_left(node.stretches, last, key=by_start) :]
        if last > node.start or node.parent.num_live_children > 1:
            return
        node = node.parent
        last = node.entries[-1].position if node.entries else node.start


def freed_bytes(stretches: Iterator[Stretch]) -> int:
    """The pages to which nothing else refers."""
    counts: dict[StoredPage, int] = {}
    for stretch in stretches:
        counts[stretch.stored] = counts.get(stretch.stored, 0) + 1
    return sum(stored.nbytes for stored, count in counts.items() if stored.references == count)
