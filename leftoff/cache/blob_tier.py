"""A tier below RAM: the same trees, with records of a blob store instead of bytes. It outlives the process.

An idle conversation is copied here as a whole; while one is still prefilled, the resume points that are worth it are.
First come resume points that several conversations share, with the pages that lead there, then the ends of
conversations, the latest first, then what lies between. What the blob store has no room for is copied later, from RAM.

What a prompt needs from here is fetched into RAM by other threads, while the engine serves other requests, and is
loaded from there.

Of a medium that machines share the trees are a view: they hold what this machine has stored, and what it found there
for the prompts that it was asked for. The budget bounds the view and not the medium, so what is evicted stays stored;
whichever machine holds the lease for that keeps the medium within its own budget. A view may be stale: what is gone is
found to be lost when it is fetched, and is forgotten.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np

from leftoff.cache.blob_store import LOWEST, BlobStore, Rank, Record, StoredPath, Wanted, Worth
from leftoff.cache.budget import ByteBudget, Clock
from leftoff.cache.capacity import Capacity, Holder, TreeLock
from leftoff.cache.costs import Costs
from leftoff.cache.fetch import SHARED_PATIENCE_S, Fetch, Search, Watch
from leftoff.cache.node import Match, Node, ResumePoint
from leftoff.cache.policy import Policy, ValuePerByte
from leftoff.cache.save import SavePath, Saver
from leftoff.cache.sequences import EngineSequence
from leftoff.cache.tier import Tier
from leftoff.cache.wear import Wear
from leftoff.cache.window_pages import WindowPages
from leftoff.engine.memory.base import Bytes, Memory, Page, Snapshot, WindowPage
from leftoff.types import Tokens

# How many times longer reading must take than fetching the snapshot instead: for one at a fork, and for one that only a
# changed prompt would resume from.
_FORK_MARGIN, _MIDDLE_MARGIN = 1, 4
_MAX_LATE = 64  # conversations that are copied later, if the blob store had no room for them


@dataclass(frozen=True)
class TierSettings:
    """Where a tier below RAM keeps its blobs, and how many bytes of them it may hold: alone, or with other models.

    `left` is what an earlier process has left there, as it was counted until now; `closed` is called when it is.
    """

    blobs: BlobStore
    budget_bytes: int | Capacity
    policy: Policy = field(default_factory=ValuePerByte)
    left: Sequence[Holder] = ()
    closed: Callable[[], None] = lambda: None


class BlobTier(Tier):
    """Pages and snapshots in a blob store."""

    def __init__(
        self,
        settings: TierSettings,
        clock: Clock,
        memory: Memory,
        costs: Costs,
        page_tokens: int,
        lock: TreeLock | None = None,
    ) -> None:
        self.blobs = settings.blobs
        self.closed = settings.closed
        self.is_shared = self.blobs.is_shared  # other machines write to the medium as well
        name, nbytes = self.blobs.origin.value, settings.budget_bytes
        super().__init__(ByteBudget(name, nbytes, settings.policy, clock, self._release, lock, costs), clock)
        self.watch = Watch(SHARED_PATIENCE_S, is_bounded=True) if self.is_shared else Watch()
        self._memory = memory
        self._has_snapshots = memory.kind.has_snapshots
        self._costs = costs
        self._page_tokens = page_tokens
        self._saver = Saver(memory, costs, self, page_tokens, self.blobs)
        self._is_behind = False  # the blob store had no room for something
        self._insert_stored([*self.blobs.stored_paths()])
        self.budget.capacity.join(self.budget, instead_of=settings.left)
        self.budget.shrink()
        if not self.is_shared and self.budget.capacity.wear is None:
            self.budget.capacity.wear = Wear()  # what is evicted from a view stays stored, and wears nothing

    # --- saving

    def save(self, sequence: EngineSequence, ram: Match, kept: int = 0) -> None:
        """Copies what is lacking here of an idle sequence, as far as the budget and the disk's speed allow.

        The pages of its first `kept` tokens are left to the sequence that keeps them in the engine.
        """
        self.forget_lost()
        self._copy(self._saver.path(sequence, ram, kept), ram, self._clock())

    def save_point(self, sequence: EngineSequence, ram: Match) -> None:
        """Copies the resume point at the end of a running sequence, if it is worth that, and what RAM has before it.

        RAM may evict it before the sequence is idle, and the sequence may run for long.
        """
        path, end = self._saver.path(sequence, ram), sequence.length
        is_fork = end in self._forks(path)
        if self._is_worth_it(path, end, is_fork=is_fork):
            path = replace(path, rank=Rank(Worth.SHARED if is_fork else Worth.END, self._clock()))
            if self._saver.make_room_until(path, end) and self._saver.save_point(path, end, is_durable=True):
                if not self.is_shared:  # the pages that RAM has; the others come with the end of the path
                    self._saver.save_pages_so_far(replace(path, seq=None))
                else:  # all of them, and none that ends after the point: no other prompt would lead there
                    self._saver.save_until(path, end)
            self._promote(path, end, path.rank)

    def catch_up(self, ram: Tier) -> None:
        """Copies from RAM what the blob store had no room for, the latest conversations first. Called when idle."""
        self.forget_lost()
        if self._is_behind:
            self._is_behind = False
            for namespace, tokens, last_used in islice(_latest(ram), _MAX_LATE):
                if self._saver.lacking_bytes(self.match(namespace, tokens), int(tokens.size)):
                    match = ram.match(namespace, tokens)
                    self._copy(SavePath(namespace, tokens, self.insert(namespace, tokens), ram=match), match, last_used)
                if self._is_behind:
                    return

    def _copy(self, path: SavePath, ram: Match, last_used: float) -> None:
        """Copies the points of a path that are worth it, and the whole path to its end, and ranks them for writing.

        Beside its end, the path's last durable point counts as one: the next prompt resumes there if it shows the
        reply otherwise than it was written.
        """
        num_refused = self._saver.num_refused
        forks = self._forks(path)
        durable = [point.position for point in ram.points() if point.is_durable and point.position < path.length]
        durable = durable if self._has_snapshots else []
        ranked = dict.fromkeys(durable, Rank(Worth.MIDDLE, last_used))
        ranked |= dict.fromkeys((*durable[-1:], path.length), Rank(Worth.END, last_used))
        ranked |= dict.fromkeys(forks, Rank(Worth.SHARED, last_used))
        for position in (*durable[-1:], path.length):
            self._promote(path, position, ranked[position])
        self._use(path, last_used)
        self._saver.save_all(replace(path, rank=ranked[path.length]))
        for position in durable:
            if position == durable[-1] or self._is_worth_it(path, position, is_fork=position in forks):
                self._save_before_end(replace(path, rank=ranked[position]), position)
        for position in forks:
            self._promote(path, position, ranked[position])
        self._drop_outdated(path, ranked)
        self._is_behind |= self._saver.num_refused > num_refused

    def _use(self, path: SavePath, last_used: float) -> None:
        """The path was used, if not from here: its end is no older than that, and its pages are not."""
        points = list(path.match.points())
        for point in points[-1:] if self._has_snapshots else points:
            self.budget.use(point, last_used)

    def _save_before_end(self, path: SavePath, position: int) -> None:
        """Copies a resume point to which pages lead. For one that only a changed prompt needs, nothing is evicted."""
        nbytes = self._saver.snapshot_bytes(path, position)
        may_evict = path.rank.worth is not Worth.MIDDLE
        if self._saver.is_covered(path, position) and (may_evict or nbytes <= self.budget.free_bytes):
            self._saver.save_point(path, position, is_durable=True)

    def _forks(self, path: SavePath) -> list[int]:
        """The positions where other sequences have left the path, in either tree, as far as one can resume there."""
        if not self._has_snapshots:
            ends = [node.end for node in path.match.path if len(node.children) > 1]
            return [end - end % self._page_tokens for end in ends[-1:]]
        points = [*path.match.points(), *(path.ram.points() if path.ram is not None else ())]
        return sorted({point.position for point in points if point.is_durable and _is_before_fork(point)})

    def _is_worth_it(self, path: SavePath, position: int, *, is_fork: bool = False) -> bool:
        """Reading the tokens since the point before takes much longer than fetching the snapshot of this one."""
        before = max((point.position for point in path.match.points() if point.position < position), default=0)
        fetch_ms = self.blobs.costs.fetch_ms(self._saver.snapshot_bytes(path, position))
        return self._costs.prefill_ms(position - before) > (_FORK_MARGIN if is_fork else _MIDDLE_MARGIN) * fetch_ms

    def _promote(self, path: SavePath, end: int, rank: Rank) -> None:
        """Gives a rank to the point at `end` and the pages before it, as far as they still wait."""
        data: list[Bytes] = [stretch.stored.page.data for stretch in path.match.stretches() if stretch.start < end]
        if (point := path.match.point_at(end)) is not None:
            data += _data_of(point)
        self.blobs.promote([each for each in data if isinstance(each, Record)], rank)

    def _drop_outdated(self, path: SavePath, ranked: Mapping[int, Rank]) -> None:
        """Drops earlier ends of a conversation that has gone on, if they were not written yet and are worth little."""
        for point in list(path.match.points()):
            data = point.snapshot.data if point.snapshot is not None else None
            is_middle = ranked.get(point.position, LOWEST).worth is Worth.MIDDLE
            is_waiting = isinstance(data, Record) and self.blobs.is_waiting(data)
            if is_middle and is_waiting and not self._is_worth_it(path, point.position):
                self.budget.drop(point)

    # --- preparing a prompt

    def search(self, wanted: Wanted) -> Search | None:
        """Starts to look a prompt up in a medium that is shared, by other threads.

        None if reading what is not known of it takes no longer than one fetch.
        """
        num_left = int(wanted.tokens.size) - wanted.known
        if not self.is_shared or num_left <= 1:
            return None
        if self._costs.prefill_ms(num_left) <= self.blobs.costs.fetch_ms(1):
            return None
        return Search(self.blobs.search(wanted), self.add_found)

    def add_found(self, found: StoredPath | None) -> None:
        """Puts what a search has found into the trees."""
        if found is not None and self.budget.make_room(sum(item.nbytes for item in found.items)):
            self._insert_stored([found])

    def fetch(self, records: Sequence[Record], spared_s: float) -> Fetch:
        """Starts reading into RAM what spares so much prefill."""
        self.blobs.record_hits(records)
        return Fetch(self.blobs, records, self.watch, spared_s)

    # --- forgetting

    def drop(self, namespace: str, tokens: Tokens, start: int) -> None:
        """Deletes on request, unlike eviction: the blobs are removed from a shared medium, too."""
        before = self._records(namespace)
        super().drop(namespace, tokens, start)
        for record in before - self._records(namespace):
            self.blobs.remove(record)

    def _records(self, namespace: str) -> set[Record]:
        nodes = list(self.tree(namespace).nodes())
        data: list[Bytes] = [stretch.stored.page.data for node in nodes for stretch in node.stretches]
        for point in (point for node in nodes for point in node.points):
            data += _data_of(point)
        return {each for each in data if isinstance(each, Record)}

    def forget_lost(self) -> None:
        """Forgets records that could not be written after all, or were found damaged."""
        lost = self.blobs.take_lost()
        self._is_behind |= bool(lost)
        self.forget(lost)

    def forget(self, records: Iterable[Record]) -> None:
        """Removes lost records from the trees, all in one walk: there may be thousands, and the engine waits."""
        lost: set[Bytes] = {*records}
        if not lost:
            return
        for tree in self.trees.values():
            for node in list(tree.nodes()):
                for point in [point for point in node.points if _needs_any(point, lost)]:
                    self.budget.drop(point)
                self.budget.drop_lost_pages(node, lost)

    def _release(self, data: Bytes) -> None:
        assert isinstance(data, Record)
        self.blobs.release(data)

    # --- what is stored already

    def _insert_stored(self, paths: Sequence[StoredPath]) -> None:
        """Builds the trees from what the medium has. All tokens first: a later path may split a node in two."""
        for path in paths:
            self.insert(path.namespace, path.tokens)
        matches = [self.match(path.namespace, path.tokens) for path in paths]
        windows = WindowPages(self._memory.window_tokens)
        for path, match in zip(paths, matches, strict=True):
            windows.add(match, path.items)
        for path, match in zip(paths, matches, strict=True):
            self._insert_items(match, path, windows)
        self.budget.release_unused(windows.data())
        for match in matches:
            self.budget.drop_useless_pages(match.path[-1])

    def _insert_items(self, match: Match, path: StoredPath, windows: WindowPages) -> None:
        """Puts stored items of a path into the tree. A snapshot whose window is not whole is released."""
        known = {stretch.stored.page.data for stretch in match.stretches()} if self.is_shared else set[Bytes]()
        for item, age_s in zip(path.items, path.ages_s, strict=True):
            if isinstance(item, WindowPage) or item.data in known:
                continue
            snapshot = windows.completed(match, item) if isinstance(item, Snapshot) else None
            if isinstance(item, Page):
                self.budget.add_page(match, item)
            elif snapshot is None:
                self._release(item.data)
                continue
            if snapshot is not None or not self._has_snapshots:
                end = item.end if isinstance(item, Page) else item.position
                point = self.budget.add_point(match, end, snapshot, is_durable=True)
                self.budget.set_age(point, age_s)


def _needs_any(point: ResumePoint, lost: Container[Bytes]) -> bool:
    return any(data in lost for data in _data_of(point))


def _data_of(point: ResumePoint) -> list[Bytes]:
    return [point.snapshot.data, *(page.data for page in point.window)] if point.snapshot is not None else []


def _is_before_fork(point: ResumePoint) -> bool:
    """The last resume point before token sequences part."""
    return len(point.node.children) > 1 and point.node.points[-1] is point


def _latest(tier: Tier) -> Iterator[tuple[str, Tokens, float]]:
    """Namespace, tokens up to the last resume point, and last use of every sequence in a tier, the latest first."""
    leaves = [
        (namespace, node)
        for namespace, tree in tier.trees.items()
        for node in tree.nodes()
        if node.is_live and not node.num_live_children
    ]
    for namespace, node in sorted(leaves, key=lambda leaf: -leaf[1].last_used):
        nodes: list[Node] = []
        at: Node | None = node
        while at is not None and at.parent is not None:
            if nodes or at.points:
                nodes.insert(0, at)
            at = at.parent
        if nodes:
            tokens = np.concatenate([each.tokens for each in nodes])
            yield namespace, tokens[: nodes[-1].points[-1].position], node.last_used
