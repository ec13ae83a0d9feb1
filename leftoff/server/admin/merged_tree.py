"""The trees of slots, RAM and disk as one: copies of their nodes, taken between two steps, and how they are merged.

RAM   [0 ···· 40)──[40 ······ 300)           [0 ···· 40)──[40 ·· 90)──[90 ·· 300)
slot  [0 ············· 90)            →                ╰──[40 · 60)
disk  [0 ···· 40)──[40 · 60)
"""

import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from blake3 import blake3
from msgspec import Struct

from leftoff.cache.node import WIDTH, Node
from leftoff.cache.policy import Ranking
from leftoff.cache.tree import Tree, common_prefix
from leftoff.types import Tokens

MOST_NODES = 1000  # of a tree, those that were used last
_DIGITS = 20


class PointView(Struct):
    """A position that a prompt can resume from."""

    position: int
    tier: str
    bytes: int
    hits: int
    is_pinned: bool


@dataclass(slots=True)
class Copy:
    """A node of one source: a slot, RAM or disk. The bytes of its key are shared, not copied."""

    source: str
    start: int
    key: bytes
    age_s: float
    pages: Sequence[tuple[int, int, float]] = ()  # start, end, bytes per token
    points: Sequence[PointView] = ()
    children: list["Copy"] = field(default_factory=list)


@dataclass(slots=True)
class Merged:
    """Tokens [start, end) of a path that one or several sources hold."""

    parent: "Merged | None"
    start: int
    key: bytes
    copies: list[Copy]
    hasher: blake3

    @property
    def end(self) -> int:
        return self.start + len(self.key) // WIDTH

    @property
    def id(self) -> str:
        return self.hasher.hexdigest()[:_DIGITS]

    @property
    def points(self) -> list[PointView]:
        return [point for copy in self.copies for point in copy.points if self.start < point.position <= self.end]

    @property
    def path(self) -> Tokens:
        keys: list[bytes] = []
        at: Merged | None = self
        while at is not None:
            keys.append(at.key)
            at = at.parent
        return np.frombuffer(b"".join(reversed(keys)), np.int32)

    def held(self, source: str) -> tuple[int, float]:
        """How many of its tokens have pages in a tier, and the bytes of those."""
        cuts = [
            (max(0, min(end, self.end) - max(start, self.start)), each)
            for copy in self.copies
            if copy.source == source
            for start, end, each in copy.pages
        ]
        return sum(tokens for tokens, _ in cuts), sum(tokens * each for tokens, each in cuts)


def copy_tree(tier: str, tree: Tree, ranking: Ranking, now: float) -> tuple[list[Copy], bool]:
    """The nodes that were used last, parents before their children; and whether these are all."""
    roots: list[Copy] = []
    numbers = itertools.count()
    waiting: list[tuple[float, int, Node, list[Copy]]] = []

    def push(children: Iterable[Node], siblings: list[Copy]) -> None:
        for child in children:
            if child.is_live:
                heapq.heappush(waiting, (-child.last_used, next(numbers), child, siblings))

    push(tree.root.children.values(), roots)
    for _ in range(MOST_NODES):
        if not waiting:
            break
        _, _, node, siblings = heapq.heappop(waiting)
        copy = _copy_node(tier, node, ranking, now)
        siblings.append(copy)
        push(node.children.values(), copy.children)
    return roots, not waiting


def _copy_node(tier: str, node: Node, ranking: Ranking, now: float) -> Copy:
    stored = [(each, each.stored.page) for each in node.stretches]
    pages = [(each.start, each.end, page.nbytes / (page.end - page.start)) for each, page in stored]
    points = [
        PointView(each.position, tier, each.total_bytes, ranking.hits(each), each.is_pinned) for each in node.points
    ]
    return Copy(tier, node.start, node.key, now - node.last_used, pages, points)


def merge(roots: Sequence[Copy]) -> Iterator[Merged]:
    """The nodes of all sources as one tree, parents first. A node ends where one of its sources ends or parts."""
    waiting: list[tuple[Merged | None, int, list[Copy]]] = [(None, 0, group) for group in _grouped(roots, 0)]
    while waiting:
        parent, start, copies = waiting.pop()
        rests = [copy.key[(start - copy.start) * WIDTH :] for copy in copies]
        tokens = [np.frombuffer(rest, np.int32) for rest in rests]
        size = min(common_prefix(tokens[0], others) for others in tokens) * WIDTH
        hasher = (parent.hasher.copy() if parent is not None else blake3()).update(rests[0][:size])
        node = Merged(parent, start, rests[0][:size], copies, hasher)
        yield node
        goes_on = [copy for copy, rest in zip(copies, rests, strict=True) if len(rest) > size]
        begin = [
            child for copy, rest in zip(copies, rests, strict=True) if len(rest) == size for child in copy.children
        ]
        waiting += [(node, node.end, group) for group in _grouped([*goes_on, *begin], node.end)]


def _grouped(copies: Sequence[Copy], start: int) -> list[list[Copy]]:
    """By their next token."""
    groups: dict[bytes, list[Copy]] = {}
    for copy in copies:
        offset = (start - copy.start) * WIDTH
        groups.setdefault(copy.key[offset : offset + WIDTH], []).append(copy)
    return [*groups.values()]
