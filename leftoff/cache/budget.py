"""Keeps the bytes of the tree within a budget: puts resume points and pages in, and takes the least valuable out.

Entries go one at a time. One in the middle of a branch frees its snapshot only; the last of a branch takes the pages
behind the point before it along, since nothing could be resumed from them any more.
"""

import math
from bisect import bisect_right, insort
from collections.abc import Callable, Collection, Container, Sequence
from operator import attrgetter

from leftoff.cache.around import freed_bytes, gaps, index_of, pages_behind, point_before, points_after
from leftoff.cache.policy import Policy
from leftoff.cache.ranking import Ranking
from leftoff.cache.resume_point import ResumePoint, StoredPage, Stretch, by_position, by_start
from leftoff.cache.tree import Match, Node, Tree
from leftoff.engine.memory.base import Bytes, Page, Snapshot
from leftoff.types import Logits

Clock = Callable[[], float]
Released = Callable[[Bytes], None]
Shed = Callable[[int], None]

_STALE_S = 7200.0  # what was unused for so long is hardly worth the time to copy something else once more
_NEARLY = 0.1  # of the budget is free

_by_end = attrgetter("end")


def ignore_released(data: Bytes) -> None:
    """In RAM, bytes go when nobody refers to them any more."""


class ByteBudget:
    """One byte budget over the trees of all namespaces. `released` is told what has left it.

    `shed`, if there is one, is asked for room before anything recent is evicted: it gives up copies of what is held
    elsewhere too.
    """

    def __init__(
        self, name: str, budget_bytes: int, policy: Policy, clock: Clock, released: Released = ignore_released
    ) -> None:
        self.name = name
        self.budget_bytes = budget_bytes
        self.used_bytes = 0
        self.num_evictions = 0
        self._ranking = Ranking(policy)
        self._clock = clock
        self.shed: Shed | None = None
        self._released = released
        self._trees: dict[ResumePoint, Tree] = {}
        self._changed: set[ResumePoint] = set()  # what they are worth is found out when somebody has to go

    @property
    def free_bytes(self) -> int:
        return self.budget_bytes - self.used_bytes

    @property
    def is_nearly_full(self) -> bool:
        """What is put in costs something its place that was used lately."""
        return self.free_bytes < _NEARLY * self.budget_bytes and not self._may_be_stale

    @property
    def num_points(self) -> int:
        return len(self._ranking)

    # --- putting in: the caller makes room first

    def add_point(
        self,
        tree: Tree,
        match: Match,
        position: int,
        snapshot: Snapshot | None,
        logits: Logits | None = None,
        *,
        is_durable: bool = False,
    ) -> ResumePoint:
        """A resume point on the path of `match`. One that is there already only gains what it lacks."""
        node = match.node_at(position)
        assert node is not None
        point = node.point_at(position)
        if point is None:
            point = ResumePoint(node, position)
            insort(node.points, point, key=by_position)
            self._ranking.add(point, self._clock())
            self._trees[point] = tree
        before = point.nbytes
        point.snapshot = point.snapshot or snapshot
        point.logits = point.logits if point.logits is not None else logits
        point.is_durable |= is_durable
        self.used_bytes += point.nbytes - before
        tree.update_liveness(node)
        self._note_around(point)
        return point

    def add_page(self, tree: Tree, match: Match, page: Page) -> None:
        """Covers the positions of `page` that are not covered yet."""
        stored = StoredPage(page)
        for node in match.path:
            if page.end <= node.start or node.end <= page.start:
                continue
            for start, end in gaps(node, max(page.start, node.start), min(page.end, node.end)):
                insort(node.stretches, Stretch(stored, start, end), key=by_start)
                stored.references += 1
            tree.update_liveness(node)
        if stored.references:
            self.used_bytes += stored.nbytes
        else:
            self._released(page.data)
        if match.path and match.path[-1].points:
            self._changed.add(match.path[-1].points[-1])

    # --- using

    def hit(self, point: ResumePoint) -> None:
        self._ranking.hit(point, self._clock())

    def hits(self, point: ResumePoint) -> int:
        return self._ranking.hits(point)

    def last_used(self, point: ResumePoint) -> float:
        return self._ranking.last_used(point)

    def holds(self, point: ResumePoint) -> bool:
        return point in self._trees

    def hold(self, point: ResumePoint, *, held: bool = True) -> None:
        """A sequence in the engine goes on from it, or does so no longer."""
        point.num_lives += 1 if held else -1
        if self.holds(point):
            self._changed.add(point)

    def set_age(self, point: ResumePoint, age_s: float) -> None:
        """It comes from an earlier process, where it was used so long ago."""
        self._ranking.set_last_used(point, self._clock() - age_s)

    def pin(self, point: ResumePoint, *, pinned: bool = True) -> None:
        """A pinned point is never evicted, and neither are the pages that lead to it."""
        point.is_pinned = pinned
        self._changed.add(point)

    # --- taking out

    def make_room(self, nbytes: int, spared: Collection[ResumePoint] = ()) -> bool:
        """Evicts what is worth least until `nbytes` fit; before that, what is stale and what is held elsewhere too.

        False, with all that could go gone, if they cannot.
        """
        if nbytes > self.budget_bytes:
            return False
        if self.shed is not None and not self.clear_out(nbytes, spared):
            self.shed(nbytes)
        return self._evict(nbytes, spared)

    def clear_out(self, nbytes: int, spared: Collection[ResumePoint] = ()) -> bool:
        """Evicts what nobody used lately until `nbytes` fit. False if that does not do."""
        if nbytes <= self.free_bytes:
            return True
        return self._may_be_stale and self._evict(nbytes, spared, self._clock() - _STALE_S)

    @property
    def _may_be_stale(self) -> bool:
        """Something may be that nobody used lately."""
        return self._ranking.oldest <= self._clock() - _STALE_S

    def _evict(self, nbytes: int, spared: Collection[ResumePoint], unused_since: float = math.inf) -> bool:
        while self.used_bytes + nbytes > self.budget_bytes:
            self._describe_changed()
            point = self._ranking.lowest(self._clock(), spared, unused_since)
            if point is None:
                return False
            point.node.lost_until = max(point.node.lost_until, point.position)
            self.num_evictions += 1
            self.drop(point)
        return True

    def drop_pages(self, tree: Tree, match: Match, nbytes: int) -> None:
        """Gives up pages of a path that is held elsewhere too, from its end, until `nbytes` fit.

        What other branches or a pinned point need stays. The resume points stay as well: they wait for the pages to
        come back.
        """
        below: Node | None = None
        for node in reversed(match.path):
            pinned = max((point.position for point in node.points if point.is_pinned), default=node.start)
            if node.num_live_children > int(below is not None and below.is_live):
                break
            index = bisect_right(node.stretches, match.length, key=_by_end) - 1
            while index >= 0 and node.stretches[index].start >= pinned and nbytes > self.free_bytes:
                self._release(node.stretches.pop(index).stored)
                index -= 1
            if node.points:
                self._changed.add(node.points[-1])
            if pinned > node.start:
                break
            below = node
        if match.path:
            self.drop_useless_pages(tree, match.path[-1])

    def drop(self, point: ResumePoint) -> None:
        node, tree = point.node, self._trees.pop(point)
        self._note_around(point)
        self._changed.discard(point)
        del node.points[index_of(point)]
        self._ranking.remove(point)
        self.used_bytes -= point.nbytes
        if point.snapshot is not None:
            self._released(point.snapshot.data)
        self.drop_useless_pages(tree, node)

    def drop_useless_pages(self, tree: Tree, node: Node) -> None:
        """Pages at the end of a branch, behind its last point, lead nowhere."""
        at: Node | None = node
        while at is not None and at.parent is not None and at.num_live_children == 0:
            last = at.points[-1].position if at.points else at.start
            while at.stretches and at.stretches[-1].start >= last:
                self._release(at.stretches.pop().stored)
            tree.update_liveness(at)
            if at.is_live:
                break
            at = at.parent
        if at is not None and at.points:
            self._changed.add(at.points[-1])
        if at is not None and at.num_live_children == 1:
            self._changed.update(points_after(at, len(at.points)))

    def drop_lost_pages(self, tree: Tree, node: Node, lost: Container[Bytes]) -> None:
        """Their bytes are gone: what lies behind them waits for other pages, or is evicted in time."""
        gone = [stretch.stored for stretch in node.stretches if stretch.stored.page.data in lost]
        if gone:
            node.stretches = [stretch for stretch in node.stretches if stretch.stored not in gone]
            for stored in gone:
                self._release(stored)
            self.drop_useless_pages(tree, node)

    def _release(self, stored: StoredPage) -> None:
        stored.references -= 1
        if stored.references == 0:
            self.used_bytes -= stored.nbytes
            self._released(stored.page.data)

    # --- what a point is worth

    def _note_around(self, point: ResumePoint) -> None:
        """A point changes what those beside it are worth."""
        self._changed.add(point)
        self._changed.update(points_after(point.node, index_of(point)))
        if (before := point_before(point)) is not None:
            self._changed.add(before)

    def _describe_changed(self) -> None:
        for point in self._changed:
            self._describe(point)
        self._changed.clear()

    def _describe(self, point: ResumePoint) -> None:
        before = point_before(point)
        start = before.position if before else 0
        node, nbytes = point.node, point.nbytes
        # a fork stays one when the data of its branches are gone: others were seen to begin like this
        branches = 1 if node.points[-1] is not point else len(node.children) if node.num_live_children else 0
        if branches == 0:
            # at least one: where points free nothing but together, one of them must be the first to go
            nbytes = max(1, nbytes + freed_bytes(pages_behind(point)))
            branches = point.num_lives
        # what frees nothing is never chosen
        self._ranking.describe(point, point.position - start, 0 if point.is_pinned else nbytes, branches)

    def check_integrity(self, trees: Sequence[Tree]) -> None:
        """Raises AssertionError if the count of bytes is not what the trees hold. For tests."""
        points = [point for tree in trees for node in tree.nodes() for point in node.points]
        pages = {stretch.stored for tree in trees for node in tree.nodes() for stretch in node.stretches}
        held = sum(point.nbytes for point in points) + sum(stored.nbytes for stored in pages)
        assert held == self.used_bytes, f"{held} bytes held, {self.used_bytes} counted"
        assert self.used_bytes <= self.budget_bytes
        assert set(points) == set(self._trees)
