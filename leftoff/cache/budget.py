"""Keeps the bytes of a tier's trees within a budget: adds resume points and pages, evicts the least valuable.

Resume points are evicted one at a time. One in the middle of a branch frees its snapshot alone; the last of a branch
also frees the pages after the point before it, since nothing can be resumed from them any more.
"""

import math
from bisect import bisect_right, insort
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from operator import attrgetter

from leftoff.cache.capacity import Capacity, Offer, TreeLock
from leftoff.cache.costs import Costs
from leftoff.cache.node import (
    Match,
    Node,
    ResumePoint,
    StoredPage,
    Stretch,
    by_position,
    by_start,
    gaps,
    index_of,
    points_after,
)
from leftoff.cache.policy import NO_LIMIT, Limit, Policy
from leftoff.cache.ranking import Ranking
from leftoff.cache.tree import Tree
from leftoff.engine.memory.base import Bytes, Page, Snapshot
from leftoff.types import Logits

Clock = Callable[[], float]
Released = Callable[[Bytes], None]
Shed = Callable[[int], None]

_STALE_S = 7200.0  # a resume point unused for so long may be evicted for a copy that is only convenient
_NEARLY_FULL = 0.1  # of the budget is free

_by_end = attrgetter("end")


def ignore_released(data: Bytes) -> None:
    """Does nothing: in RAM, bytes are freed with the last reference to them."""


class ByteBudget:
    """One budget for the trees of all namespaces of a tier. `released` is called with the bytes that were evicted.

    `shed`, if set, is asked for room before anything recent is evicted: it drops pages that the engine holds as well.
    The capacity may be shared with other models, once this budget has joined it. Then `lock` is held by the thread that
    uses the trees, and what is evicted is worth least of all models' points, by the milliseconds saved per byte.
    """

    def __init__(
        self,
        name: str,
        budget_bytes: int | Capacity,
        policy: Policy,
        clock: Clock,
        released: Released = ignore_released,
        lock: TreeLock | None = None,
        costs: Costs | None = None,
    ) -> None:
        self.name = name
        self.lock = lock or TreeLock()
        self.lock.holders.append(self)
        self.used_bytes = 0
        self.reserved_bytes = 0  # for what is added next
        self.capacity = Capacity(budget_bytes, self) if isinstance(budget_bytes, int) else budget_bytes
        self.most_bytes = 0  # that were ever kept at one time
        self.num_evictions = 0
        self.ranking = Ranking(policy, self._own_window_bytes)
        self._clock = clock
        self._costs = costs or Costs()
        self.shed: Shed | None = None
        self._spared: Collection[ResumePoint] = ()  # while room is made
        self._released = released
        self._window_uses: dict[Bytes, int] = {}  # of window pages by their bytes: how many points share each
        self.num_changes = 0  # of trees, points and pages: a plan made before the last one is stale

    @property
    def budget_bytes(self) -> int:
        return self.capacity.nbytes

    @property
    def free_bytes(self) -> int:
        return self.capacity.free_bytes + self.reserved_bytes

    @property
    def is_nearly_full(self) -> bool:
        """Adding anything substantial would evict a resume point used in the last two hours."""
        return self.free_bytes < _NEARLY_FULL * self.budget_bytes and not self._may_be_stale

    @property
    def is_mostly_free(self) -> bool:
        return 2 * self.free_bytes > self.budget_bytes

    @property
    def num_points(self) -> int:
        return len(self.ranking)

    # --- adding: the caller makes room first, or claims what is free

    def claim(self, nbytes: int) -> bool:
        """Reserves so many bytes for what is added next. False if that would evict something."""
        return self.capacity.claim(self, nbytes)

    def add_point(
        self,
        match: Match,
        position: int,
        snapshot: Snapshot | None,
        logits: Logits | None = None,
        *,
        is_durable: bool = False,
    ) -> ResumePoint:
        """Adds a resume point on the path of `match`, or what the point there already lacks."""
        node = match.node_at(position)
        assert node is not None
        point = node.point_at(position)
        if point is None:
            point = ResumePoint(node, position)
            insort(node.points, point, key=by_position)
            self.ranking.add(point, self._clock())
        before = point.nbytes
        if point.snapshot is None and snapshot is not None:
            self._use_window(snapshot)
        point.snapshot = point.snapshot or snapshot
        point.logits = point.logits if point.logits is not None else logits
        point.is_durable |= is_durable
        self._take(point.nbytes - before)
        self.num_changes += 1
        node.update_liveness()
        self.ranking.changed_around(point)
        self.ranking.changed_beside(node)
        return point

    def add_page(self, match: Match, page: Page, *, takes_over: bool = False) -> None:
        """Covers the positions of `page` that no other page covers.

        If there are none, it `takes_over` those of other pages, or is released.
        """
        stored = StoredPage(page)
        self.num_changes += 1
        self._cover(match, stored)
        if not stored.references and takes_over:
            self._uncover(match, page)
            self._cover(match, stored)
        if stored.references:
            self._take(stored.nbytes)
        else:
            self._released(page.data)
        if match.path and match.path[-1].points:
            self.ranking.changed(match.path[-1].points[-1])

    def _cover(self, match: Match, stored: StoredPage) -> None:
        page = stored.page
        for node in match.path:
            for start, end in gaps(node, max(page.start, node.start), min(page.end, node.end)):
                insort(node.stretches, Stretch(stored, start, end), key=by_start)
                stored.references += 1
            node.update_liveness()

    def _uncover(self, match: Match, page: Page) -> None:
        for node in match.path:
            for stretch in [each for each in node.stretches if page.start <= each.start < page.end]:
                if stretch.end > page.end:
                    stretch.start = page.end
                else:
                    node.stretches.remove(stretch)
                    self._release(stretch.stored)

    def _take(self, nbytes: int) -> None:
        self.capacity.take(self, nbytes)
        self.most_bytes = max(self.most_bytes, self.used_bytes)

    # --- using

    def hit(self, point: ResumePoint) -> None:
        """Records that a prompt was resumed from it."""
        self.ranking.hit(point, self._clock())

    def use(self, point: ResumePoint, moment: float) -> None:
        """The conversation was at the point then, though it was resumed from another tier."""
        self.ranking.set_last_used(point, max(moment, self.ranking.last_used(point)))

    def holds(self, point: ResumePoint) -> bool:
        """The point belongs to this tier, and was not evicted."""
        return point in self.ranking

    def move_sequence(self, before: ResumePoint | None, after: ResumePoint | None) -> bool:
        """A sequence of the engine goes on from `after`: the value of both is estimated again before the next eviction.

        False if `after` does not belong to this tier, or was evicted.
        """
        if before is not None:
            before.num_sequences -= 1
            if before in self.ranking:
                self.ranking.changed(before)
        if after is None or after not in self.ranking:
            return False
        after.num_sequences += 1
        self.ranking.changed(after)
        return True

    def set_age(self, point: ResumePoint, age_s: float) -> None:
        """Sets back when a point was used last, for one that an earlier process has left."""
        self.ranking.set_last_used(point, self._clock() - age_s)

    def pin(self, point: ResumePoint, *, is_pinned: bool = True) -> None:
        """Protects a point, and the pages that lead to it, from eviction; or no longer."""
        point.is_pinned = is_pinned
        self.ranking.changed(point)

    # --- evicting

    def make_room(self, nbytes: int, spared: Collection[ResumePoint] = (), last_used: float = math.inf) -> bool:
        """Evicts until `nbytes` fit: stale points first, then pages that the engine holds too, then the least valuable.

        False if even evicting everything but `spared` is not enough; on a medium that wears also if too much would be
        replaced by a newcomer that was used at `last_used`.
        """
        if nbytes > self.budget_bytes:
            return False
        self._spared = spared
        try:
            if self.shed is not None and not self.evict_stale(nbytes):
                self.shed(nbytes)
            return self._evict(nbytes, last_used)
        finally:
            self._spared = ()

    def evict_stale(self, nbytes: int) -> bool:
        """Evicts stale points, and no others, until `nbytes` fit. False if that is not enough."""
        if self.claim(nbytes):
            return True
        return self._may_be_stale and self._evict(nbytes, unused_since=self._clock() - _STALE_S)

    def shrink(self) -> None:
        """Evicts what is too much, also from a medium that wears."""
        while not self.claim(0) and self.capacity.evict_lowest(self, self._clock(), NO_LIMIT):
            pass

    @property
    def _may_be_stale(self) -> bool:
        return self.capacity.oldest <= self._clock() - _STALE_S

    @property
    def oldest(self) -> float:
        return self.ranking.oldest

    def _evict(self, nbytes: int, last_used: float = math.inf, unused_since: float = math.inf) -> bool:
        now, limit = self._clock(), Limit(unused_since=unused_since)
        while not self.claim(nbytes):
            if self.capacity.wear is not None:
                limit = self.capacity.limit(now, last_used)
            if nbytes - self.free_bytes > limit.most_bytes or not self.capacity.evict_lowest(self, now, limit):
                return False
        return True

    def offer(self, limit: Limit) -> Offer | None:
        """The point that this budget would evict next, by its worth; None if the limit allows none."""
        victim = self.ranking.lowest(self._clock(), self._spared, limit)
        if victim is None:
            return None
        return Offer(victim.rank * self._costs.prefill_ms(1), victim.is_end, victim.last_used)

    def evict_one(self, limit: Limit) -> bool:
        now, used_bytes = self._clock(), self.used_bytes
        point = self.ranking.choose_victim(now, self._spared, limit)
        if point is None:
            return False
        point.node.lost_until = max(point.node.lost_until, point.position)
        self.num_evictions += 1
        self.drop(point)
        self.capacity.wear_by(used_bytes - self.used_bytes, now)
        return True

    def drop_pages(self, match: Match, nbytes: int) -> None:
        """Drops pages of a path that the engine holds as well, from its end, until `nbytes` fit.

        Pages that other branches or a pinned point need stay. So do the resume points: they are usable again as soon
        as the sequence is saved when it leaves the engine.
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
                self.ranking.changed(node.points[-1])
            if pinned > node.start:
                break
            below = node
        if match.path:
            self.drop_useless_pages(match.path[-1])

    def drop(self, point: ResumePoint) -> None:
        """Removes a point, and the pages that led to it alone."""
        self.num_changes += 1
        node = point.node
        self.ranking.changed_around(point)
        del node.points[index_of(point)]
        self.ranking.remove(point)
        self.used_bytes -= point.nbytes
        if point.snapshot is not None:
            self._released(point.snapshot.data)
            self._release_window(point.snapshot)
        self.drop_useless_pages(node)

    def drop_useless_pages(self, node: Node) -> None:
        """Drops pages at the end of a branch, after its last point: nothing can be resumed from them."""
        at: Node | None = node
        while at is not None and at.parent is not None and at.num_live_children == 0:
            last = at.points[-1].position if at.points else at.start
            while at.stretches and at.stretches[-1].start >= last:
                self._release(at.stretches.pop().stored)
            at.update_liveness()
            if at.is_live:
                break
            at = at.parent
        if at is not None and at.points:
            self.ranking.changed(at.points[-1])
        if at is not None and at.num_live_children == 1:
            self.ranking.changed(*points_after(at, len(at.points)))

    def drop_lost_pages(self, node: Node, lost: Container[Bytes]) -> None:
        """Removes pages whose bytes are lost. Points after them stay, until other pages come or they are evicted."""
        gone = [stretch.stored for stretch in node.stretches if stretch.stored.page.data in lost]
        if gone:
            node.stretches = [stretch for stretch in node.stretches if stretch.stored not in gone]
            for stored in gone:
                self._release(stored)
            self.drop_useless_pages(node)

    def _release(self, stored: StoredPage) -> None:
        self.num_changes += 1
        stored.references -= 1
        if stored.references == 0:
            self.used_bytes -= stored.nbytes
            self._released(stored.page.data)

    # --- window pages: several points close to each other share them

    def release_unused(self, stored: Iterable[Bytes]) -> None:
        """Releases window pages of a snapshot that is not added after all, but for those that a point has as well."""
        for data in stored:
            if data not in self._window_uses:
                self._released(data)

    def _use_window(self, snapshot: Snapshot) -> None:
        for page in snapshot.window:
            if page.data not in self._window_uses:
                self._take(page.nbytes)
            self._window_uses[page.data] = self._window_uses.get(page.data, 0) + 1

    def _release_window(self, snapshot: Snapshot) -> None:
        for page in snapshot.window:
            self._window_uses[page.data] -= 1
            if not self._window_uses[page.data]:
                del self._window_uses[page.data]
                self.used_bytes -= page.nbytes
                self._released(page.data)

    def _own_window_bytes(self, point: ResumePoint) -> int:
        return sum(page.nbytes for page in point.window if self._window_uses[page.data] == 1)

    def check_integrity(self, trees: Sequence[Tree]) -> None:
        """Raises AssertionError if the count of bytes is not what the trees hold. For tests."""
        points = [point for tree in trees for node in tree.nodes() for point in node.points]
        pages = {stretch.stored for tree in trees for node in tree.nodes() for stretch in node.stretches}
        windows = {page.data: page.nbytes for point in points for page in point.window}
        held = sum(point.nbytes for point in points) + sum(stored.nbytes for stored in pages) + sum(windows.values())
        assert held == self.used_bytes, f"{held} bytes held, {self.used_bytes} counted"
        assert self.used_bytes <= self.budget_bytes
        assert len(points) == self.num_points
        assert all(map(self.holds, points))
