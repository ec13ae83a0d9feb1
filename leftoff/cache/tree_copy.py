"""The nodes of a tree copied between two steps of the engine, for whoever shows the cache or tells others of it.

Only numbers are copied, and references to the keys: a copy keeps no page and no snapshot. Hashing, merging and text are
done with the copies, on other threads.
"""

import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec import Struct

from leftoff.cache.node import WIDTH, Node
from leftoff.cache.tier import Tier
from leftoff.types import Tokens


class PageCopy(Struct, frozen=True, gc=False):
    """Positions [start, end) of a page, which may reach beyond them: it covers [page_start, page_end)."""

    start: int
    end: int
    page_start: int
    page_end: int
    nbytes: int  # of the whole page


class PointCopy(Struct, frozen=True, gc=False):
    """A position that a prompt can resume from."""

    position: int
    nbytes: int
    hits: int
    last_used: float
    is_pinned: bool
    has_logits: bool


@dataclass(slots=True)
class NodeCopy:
    """Tokens [start, end) of a path in one source: a tier, by its name, or a sequence of the engine."""

    source: str
    start: int
    key: bytes
    last_used: float
    pages: Sequence[PageCopy] = ()
    points: Sequence[PointCopy] = ()
    children: list["NodeCopy"] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.start + len(self.key) // WIDTH

    @property
    def tokens(self) -> Tokens:
        return np.frombuffer(self.key, np.int32)

    def nodes(self) -> Iterator["NodeCopy"]:
        """Itself and all nodes below, parents first."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            waiting += node.children
            yield node


@dataclass(frozen=True)
class TreeCopy:
    """The nodes of one namespace: all of them, or those that were used last."""

    namespace: str
    roots: Sequence[NodeCopy]
    is_whole: bool = True


def copy_tree(tier: Tier, namespace: str, max_nodes: int | None = None) -> TreeCopy:
    """Copies the live nodes of a tree, at most so many: those that were used last. Called on the engine's thread."""
    roots: list[NodeCopy] = []
    # A node was used no earlier than those below it. Without a limit the order does not matter, and a stack is faster.
    put, take = (list.append, list.pop) if max_nodes is None else (heapq.heappush, heapq.heappop)
    waiting: list[tuple[float, int, Node, list[NodeCopy]]] = []
    number = itertools.count()  # so that nodes are never compared
    node, siblings, num_copied = tier.trees[namespace].root, roots, 0
    while True:
        for child in node.children.values():
            if child.is_live:
                put(waiting, (-child.last_used, next(number), child, siblings))
        if not waiting or num_copied == max_nodes:
            return TreeCopy(namespace, roots, not waiting)
        *_, node, beside = take(waiting)
        copy = _copy_node(tier, node)
        beside.append(copy)
        siblings, num_copied = copy.children, num_copied + 1


def _copy_node(tier: Tier, node: Node) -> NodeCopy:
    ranking = tier.budget.ranking
    pages = [
        PageCopy(each.start, each.end, (page := each.stored.page).start, page.end, page.nbytes)
        for each in node.stretches
    ]
    points = [
        PointCopy(
            each.position,
            each.total_bytes,
            ranking.hits(each),
            ranking.last_used(each),
            each.is_pinned,
            each.logits is not None,
        )
        for each in node.points
    ]
    return NodeCopy(tier.budget.name, node.start, node.key, node.last_used, pages, points)
