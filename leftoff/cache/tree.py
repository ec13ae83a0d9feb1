"""A radix tree of token sequences: a common prefix is stored once, and a node begins where sequences part.

        root ──[0 ····· header ····· 40)──┬──[40 ··· first chat ··· 300)
                                          └──[40 ··· second chat ··· 90)

A node is a run of tokens [start, end) with the resume points inside it and the stretches of pages that cover it. Resume
points sit at positions, not at node ends: adding or evicting one never reshapes the tree.

Tokens are compared as bytes, which is memcmp. They stay in the tree after their data was evicted, so that a report can
tell evicted from new. The tree counts no bytes and evicts nothing; `budget.py` does.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from leftoff.cache.node import WIDTH, Match, Node, StoredPage, Stretch, by_position, by_start
from leftoff.types import Tokens


class Tree:
    """The token sequences of one namespace. Not thread-safe."""

    def __init__(self) -> None:
        self.root = Node(None, 0, b"")
        self.num_tokens = 0

    def match(self, tokens: Tokens) -> Match:
        """The longest prefix of `tokens` in the tree."""
        data = tokens.tobytes()
        path: list[Node] = []
        node, at = self.root, 0
        while True:
            child = node.children.get(data[at : at + WIDTH])
            if child is None:
                return Match(tuple(path), at // WIDTH)
            path.append(child)
            stop = at + len(child.key)
            if not data.startswith(child.key, at):  # nothing is copied
                return Match(tuple(path), at // WIDTH + common_prefix(tokens[at // WIDTH :], child.tokens))
            node, at = child, stop

    def insert(self, tokens: Tokens, now: float) -> Match:
        """Adds a sequence; returns its whole path."""
        match = self.match(tokens)
        path = list(match.path)
        if match.length < tokens.size:
            rest = tokens[match.length :].tobytes()
            if path and match.length < path[-1].end:
                path[-1] = self._split(path[-1], match.length)
            if path and not path[-1].children:
                path[-1].key += rest
                path[-1].end = int(tokens.size)
            else:
                path.append(self._add(path[-1] if path else self.root, match.length, rest))
            self.num_tokens += len(rest) // WIDTH
        for node in path:
            node.last_used = now
        return Match(tuple(path), int(tokens.size))

    def forget(self, node: Node) -> None:
        """Removes a leaf without data. A parent that is left with one child is merged with it."""
        assert node.is_leaf
        assert not node.holds_data
        assert node.parent is not None
        parent = node.parent
        del parent.children[node.key[:WIDTH]]
        self.num_tokens -= len(node.key) // WIDTH
        node.parent = None
        if len(parent.children) == 1 and parent.parent is not None:
            self._merge(parent)

    def nodes(self) -> Iterator[Node]:
        """All nodes, parents first."""
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            waiting.extend(node.children.values())
            if node is not self.root:
                yield node

    def check_integrity(self) -> None:
        """Raises AssertionError if anything contradicts itself. For tests."""
        assert self.num_tokens == sum(len(node.key) // WIDTH for node in self.nodes())
        references: dict[StoredPage, int] = {}
        for node in self.nodes():
            _check_node(node)
            assert node.num_live_children == sum(child.is_live for child in node.children.values())
            assert node.is_live == (node.holds_data or node.num_live_children > 0)
            for stretch in node.stretches:
                references[stretch.stored] = references.get(stretch.stored, 0) + 1
        for stored, count in references.items():
            assert stored.references == count, f"{stored} has {count} stretches"

    def _add(self, parent: Node, start: int, key: bytes) -> Node:
        child = Node(parent, start, key)
        parent.children[key[:WIDTH]] = child
        return child

    def _split(self, node: Node, position: int) -> Node:
        """Splits `node` at `position` and returns the new upper half; `node` itself becomes the lower one.

        [start ············ end)  →  [start ··· position)──[position ··· end)
        """
        assert node.parent is not None
        size = (position - node.start) * WIDTH
        upper = Node(node.parent, node.start, node.key[:size], last_used=node.last_used, is_live=node.is_live)
        upper.lost_until = min(node.lost_until, position)
        node.parent.children[node.key[:WIDTH]] = upper
        node.parent, node.start, node.key = upper, position, node.key[size:]
        upper.children[node.key[:WIDTH]] = node
        stop = bisect_right(node.points, position, key=by_position)
        upper.points, node.points = node.points[:stop], node.points[stop:]
        for point in upper.points:
            point.node = upper
        stop = bisect_left(node.stretches, position, key=by_start)
        upper.stretches, node.stretches = node.stretches[:stop], node.stretches[stop:]
        if upper.stretches and upper.stretches[-1].end > position:
            self._split_stretch(upper.stretches[-1], node, position)
        node.is_live = node.holds_data or node.num_live_children > 0
        upper.num_live_children = int(node.is_live)
        return upper

    def _split_stretch(self, stretch: Stretch, lower: Node, position: int) -> None:
        if lower.points or lower.num_live_children:  # else nothing below could be resumed from
            lower.stretches.insert(0, Stretch(stretch.stored, position, stretch.end))
            stretch.stored.references += 1
        stretch.end = position

    def _merge(self, node: Node) -> None:
        """Merges a node into its only child, which takes its place."""
        (child,) = node.children.values()
        assert node.parent is not None
        for point in node.points:
            point.node = child
        child.points = node.points + child.points
        child.stretches = _joined(node.stretches, child.stretches)
        child.start, child.key, child.parent = node.start, node.key + child.key, node.parent
        child.lost_until = max(child.lost_until, node.lost_until)
        child.is_live = child.holds_data or child.num_live_children > 0
        node.parent.children[node.key[:WIDTH]] = child
        node.parent = None


def common_prefix(left: Tokens, right: Tokens) -> int:
    """The number of tokens that two runs have in common at their beginning."""
    size = min(left.size, right.size)
    different = left[:size] != right[:size]
    first = int(different.argmax()) if size else 0
    return first if size and different[first] else int(size)


def _joined(upper: list[Stretch], lower: list[Stretch]) -> list[Stretch]:
    """Joins two stretches of one page that meet into one."""
    if upper and lower and upper[-1].stored is lower[0].stored and upper[-1].end == lower[0].start:
        upper[-1].end = lower[0].end
        upper[-1].stored.references -= 1
        lower = lower[1:]
    return upper + lower


def _check_node(node: Node) -> None:
    assert node.key, "an empty node"
    assert node.parent is not None
    assert node.parent.children[node.key[:WIDTH]] is node
    assert node.parent.end == node.start
    assert node.end == node.start + len(node.key) // WIDTH
    assert len(node.children) != 1, f"[{node.start}, {node.end}) should be one with its only child"
    positions = [point.position for point in node.points]
    assert positions == sorted(set(positions)), f"points out of order: {positions}"
    assert all(node.start < position <= node.end for position in positions)
    assert all(point.node is node for point in node.points)
    last = node.start
    for stretch in node.stretches:
        assert last <= stretch.start < stretch.end <= node.end, "stretches overlap or leave their node"
        assert stretch.stored.page.start <= stretch.start
        assert stretch.end <= stretch.stored.page.end
        last = stretch.end
