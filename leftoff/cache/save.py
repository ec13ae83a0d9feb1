"""Copies to a tier what it lacks of a sequence: resume points, and the pages that lead to them.

The tree alone records what is saved: a page is made only for positions that no page covers yet, so a header shared by
any number of conversations is stored once.
"""

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from leftoff.cache.blob_store import LOWEST, BlobStore, Item, Rank, Record
from leftoff.cache.costs import Costs
from leftoff.cache.node import Match, ResumePoint
from leftoff.cache.sequences import EngineSequence
from leftoff.cache.tier import Tier
from leftoff.engine.memory.base import Memory, Page, Snapshot, Span, WindowPage
from leftoff.picture_tokens import cuts_picture, whole
from leftoff.types import Logits, Tokens

_MOST_OF_A_GROUP = 0.75  # of the bytes that one call moves best
_LOOK_S, _PATIENCE_S = 0.001, 1.0  # between looks whether threads have copied, and for all of them


@dataclass(frozen=True)
class SavePath:
    """A token sequence in the tree of the tier it is saved to, and where its bytes are: in the engine, in RAM, or both.

    `tokens` must not change while a blob store reads them.
    """

    namespace: str
    tokens: Tokens
    match: Match
    seq: int | None = None  # None if the engine does not hold it
    ram: Match | None = None  # what RAM holds of it, when it is saved to disk
    rank: Rank = LOWEST  # with which a blob store writes it
    start: int = 0  # no pages are saved of what comes before

    @property
    def length(self) -> int:
        return int(self.tokens.size)

    @property
    def last_used(self) -> float:
        return self.rank.last_used or math.inf


class Saver:
    """Saves to one tier: to RAM, or through `blobs` to disk. Makes room for it, and cuts it into pages."""

    def __init__(
        self, memory: Memory, costs: Costs, tier: Tier, page_tokens: int, blobs: BlobStore | None = None
    ) -> None:
        self._memory = memory
        self._costs = costs
        self._tier = tier
        self._budget = tier.budget
        self._page_tokens = page_tokens
        self._blobs = blobs
        self._least_group_bytes = _MOST_OF_A_GROUP * memory.group_bytes
        self._overhead_bytes = blobs.overhead_bytes if blobs is not None else 0
        self._whole_page_bytes = self._page_bytes(page_tokens)
        self.num_refused = 0  # puts that the blob store did not take

    def path(self, sequence: EngineSequence, ram: Match | None = None, kept: int = 0) -> SavePath:
        """Inserts the sequence's tokens into the tier's tree. No pages are saved of its first `kept` tokens.

        In a medium that machines share, pages begin where those of other sequences do: the page before is theirs.
        """
        tokens = sequence.tokens if self._blobs is None else sequence.tokens.copy()
        match = self._tier.insert(sequence.namespace, tokens)
        is_shared = self._blobs is not None and self._blobs.is_shared
        start = whole(tokens, kept - kept % self._page_tokens) if is_shared else kept
        return SavePath(sequence.namespace, tokens, match, sequence.seq, ram, start=start)

    def save_point(
        self, path: SavePath, position: int, logits: Logits | None = None, *, is_durable: bool = False
    ) -> ResumePoint | None:
        """Saves a resume point at `position`. None if its snapshot is not available, or there is no room for it."""
        known = path.match.point_at(position)
        if known is not None and (logits is None or known.logits is not None):
            known.is_durable |= is_durable
            return known
        logits_bytes = logits.nbytes if logits is not None else 0
        wants_snapshot = self._memory.kind.has_snapshots and (known is None or known.snapshot is None)
        estimate = self.snapshot_bytes(path, position) if wants_snapshot else 0
        # `known` must not be evicted for its own logits: what is added then would have no snapshot
        if not self._make_room(path, estimate + logits_bytes, [known] if known else []):
            return None
        snapshot = self._save_snapshot(path, position, logits_bytes) if wants_snapshot else None
        if wants_snapshot and snapshot is None:
            return None
        return self._budget.add_point(path.match, position, snapshot, logits, is_durable=is_durable)

    def save_pages_so_far(self, path: SavePath) -> None:
        """Saves whole pages up to the last resume point, if they fit without evicting anything.

        Called during prefill, so that little is left to save at the end; only then is it known what is worth evicting
        for. Pages after the last resume point could not be resumed from.
        """
        if self._memory.kind.has_snapshots:
            point = path.match.last_point()
            end = point.position if point is not None else 0
        else:
            end = path.length
        pages = list(self._missing_pages(path, end - end % self._page_tokens))
        if pages and (nbytes := self._nbytes(pages)) >= self._least_group_bytes and self._budget.claim(nbytes):
            self._save_pages(path, pages)

    def save_all(self, path: SavePath) -> None:
        """Saves the whole sequence, or its longest prefix that ends at a resume point and fits into the budget."""
        for end in self._ends(path):
            if self.save_until(path, end):
                return

    def save_if_cheap(self, path: SavePath, is_wanted: Callable[[], bool] | None = None) -> None:
        """Saves the whole sequence, if only stale points must be evicted for it: the engine still holds it.

        With `is_wanted` in small steps; as soon as the engine is wanted, it stops.
        """
        lacking = self.lacking_bytes(path.match, path.length, path.start)
        if not lacking or not self._is_whole(path) or not self._budget.evict_stale(lacking):
            return
        is_slow = self._memory.step_bytes and self._whole_page_bytes
        if is_wanted is not None and is_slow and not self._save_in_steps(path, is_wanted):
            return
        self.save_until(path, path.length)

    def _save_in_steps(self, path: SavePath, is_wanted: Callable[[], bool]) -> bool:
        """Saves all whole pages. False if it had to stop.

        Each step begins when threads have copied what the one before it has moved: a request that comes never waits
        for them.
        """
        missing = list(self._missing_pages(path, path.length - path.length % self._page_tokens))
        num_pages = max(1, self._memory.step_bytes // self._whole_page_bytes)
        for first in range(0, len(missing), num_pages):
            pages = missing[first : first + num_pages]
            self._wait_for_copies(is_wanted)
            if is_wanted() or not self._budget.evict_stale(self._nbytes(pages)):
                return False
            self._save_pages(path, pages)
        return True

    def _wait_for_copies(self, is_wanted: Callable[[], bool]) -> None:
        until = time.monotonic() + _PATIENCE_S
        while self._memory.is_copying and not is_wanted() and time.monotonic() < until:
            time.sleep(_LOOK_S)

    def lacking_bytes(self, match: Match, length: int, start: int = 0) -> int:
        """About how many bytes of a sequence the tier does not have from `start` on; 0 if it has all of them."""
        kind, nbytes = self._memory.kind, 0
        if kind.has_pages and (missing := length - start - match.num_covered(start)):
            whole, rest = divmod(missing, self._page_tokens)
            nbytes = whole * self._whole_page_bytes + self._page_bytes(rest)
        if kind.has_snapshots and match.point_at(length) is None:
            nbytes += self._estimated_bytes(match, length)
        return nbytes

    def _ends(self, path: SavePath) -> Iterator[int]:
        """How far to save, best first: to the end, else to an earlier resume point."""
        length = path.length
        if path.seq is None or self._is_whole(path):
            yield length
        if self._memory.kind.has_snapshots:
            yield from sorted(self._known_points(path), reverse=True)
        elif self._blobs is None:
            yield from (length * quarter // 4 for quarter in (3, 2, 1))
        else:
            yield self._fitting_end(path)

    def _known_points(self, path: SavePath) -> set[int]:
        """The positions of the resume points that the tier has, or that RAM has for it."""
        in_ram = path.ram.points() if path.ram is not None else ()
        return {point.position for point in (*path.match.points(), *(each for each in in_ram if each.is_durable))}

    def _fitting_end(self, path: SavePath) -> int:
        """The end of the longest prefix that fits without evicting anything."""
        end, free_bytes = 0, min(self._budget.free_bytes, self._left_bytes)
        for start, end in self._missing_pages(path, path.length):
            free_bytes -= self._page_bytes(end - start)
            if free_bytes < 0:
                return start
        return end

    def save_until(self, path: SavePath, end: int) -> bool:
        """Saves a resume point and the pages that lead to it. False if part of that is not there, or does not fit."""
        if not self._can_fit(path, end):
            return False
        point = path.match.point_at(end)
        if point is None and self._memory.kind.has_snapshots:
            if self._blobs is not None and not self.make_room_until(path, end):
                return False
            point = self.save_point(path, end, is_durable=True)
            if point is None:
                return False
        # evicting may take pages of this very path: then more is missing than before
        while not self._budget.claim(nbytes := self._nbytes(pages := list(self._missing_pages(path, end)))):
            if not self._make_room(path, nbytes, [point] if point else []):
                return False
        return self._save_pages(path, pages)

    def make_room_until(self, path: SavePath, end: int) -> bool:
        """Makes room for a resume point and the pages that lead to it: one without the other is of no use."""
        nbytes = self._nbytes(self._missing_pages(path, end)) + self.snapshot_bytes(path, end)
        return self._make_room(path, nbytes)

    def _make_room(self, path: SavePath, nbytes: int, spared: Collection[ResumePoint] = ()) -> bool:
        if nbytes > self._left_bytes:
            return False
        return self._budget.make_room(nbytes, spared, path.last_used)

    @property
    def _left_bytes(self) -> float:
        """Bytes that the blob store still takes today: infinite without a daily limit."""
        return self._blobs.left_bytes if self._blobs is not None else math.inf

    def _can_fit(self, path: SavePath, end: int) -> bool:
        """The prefix up to `end` fits into the budget, if need be by evicting everything else."""
        missing, snapshot_bytes = self._nbytes(self._missing_pages(path, end)), self.snapshot_bytes(path, end)
        if missing + snapshot_bytes <= self._budget.free_bytes:
            return True
        covered = {stretch.stored for stretch in path.match.stretches() if stretch.start < end}
        return missing + sum(stored.nbytes for stored in covered) + snapshot_bytes <= self._budget.budget_bytes

    def _is_whole(self, path: SavePath) -> bool:
        return path.seq is not None and self._memory.is_whole(path.seq)

    # --- pages

    def is_covered(self, path: SavePath, end: int) -> bool:
        """The tier has all pages up to `end`."""
        return next(self._missing_pages(path, end), None) is None

    def _missing_pages(self, path: SavePath, end: int) -> Iterator[Span]:
        """The uncovered parts of [0, end), cut at multiples of the page size, but not within a picture."""
        if not self._memory.kind.has_pages:
            return
        while cuts_picture(path.tokens, end):
            end -= 1
        start = path.start
        for first, last in self._covered(path.match):
            if first > start:
                yield from self._cut(path.tokens, start, min(first, end))
            start = max(start, last)
        yield from self._cut(path.tokens, start, end)

    def _covered(self, match: Match) -> list[Span]:
        """The stretches of positions whose pages the tier has, by position.

        In a medium that machines share a page is found by the path to its end: one that the path has only the beginning
        of, since it goes on into another path, is not found, and does not count.
        """
        stretches = list(match.stretches())
        if self._blobs is None or not self._blobs.is_shared:
            return [(stretch.start, stretch.end) for stretch in stretches]
        ends = {stretch.stored: min(stretch.end, match.length) for stretch in stretches}
        return sorted((stored.page.start, stored.page.end) for stored, end in ends.items() if stored.page.end <= end)

    def _cut(self, tokens: Tokens, start: int, end: int) -> Iterator[Span]:
        while start < end:
            border = min(end, whole(tokens, (start // self._page_tokens + 1) * self._page_tokens))
            yield start, border
            start = border

    def _save_pages(self, path: SavePath, spans: Sequence[Span]) -> bool:
        """False if the blob store took only some of them."""
        if self._blobs is None:
            for page in self._from_engine(path, spans):
                self._add_page(path, page)
            return True
        return all(self._store_page(path, span) for span in spans)

    def _store_page(self, path: SavePath, span: Span) -> bool:
        """Stores RAM's copy, else one from the engine. False if there is none, or the blob store does not take it."""
        page = path.ram.page_at(*span) if path.ram is not None else None
        if page is None or (page.start, page.end) != span:  # part of it belongs to other sequences
            if path.seq is None:
                return False
            (page,) = self._from_engine(path, [span])
        record = self._put(path, page)
        if record is not None:
            self._add_page(path, Page(*span, record))
        return record is not None

    def _put(self, path: SavePath, item: Item) -> Record | None:
        assert self._blobs is not None
        record = self._blobs.put(item, path.namespace, path.tokens, path.rank)
        self.num_refused += record is None
        return record

    def _from_engine(self, path: SavePath, spans: Sequence[Span]) -> list[Page]:
        assert path.seq is not None
        began = time.perf_counter()
        pages = self._memory.save_pages(path.seq, spans)
        self._costs.saw_save(sum(page.nbytes for page in pages), 1000 * (time.perf_counter() - began))
        return pages

    def _add_page(self, path: SavePath, page: Page) -> None:
        self._budget.add_page(path.match, page, takes_over=True)
        if not self._memory.kind.has_snapshots:
            self._budget.add_point(path.match, page.end, None)

    def _page_bytes(self, num_tokens: int) -> int:
        return self._memory.page_bytes(num_tokens) + self._overhead_bytes

    def _nbytes(self, pages: Iterable[Span]) -> int:
        return sum(self._page_bytes(end - start) for start, end in pages)

    # --- snapshots

    def _save_snapshot(self, path: SavePath, position: int, logits_bytes: int) -> Snapshot | None:
        """Makes room a second time: only now is the size known, and no longer an estimate."""
        snapshot = self._snapshot_in_ram(path, position) or self._snapshot_in_engine(path, position)
        if snapshot is None or not self._make_room(path, self._new_bytes(path, snapshot) + logits_bytes):
            return None
        return snapshot if self._blobs is None else self._store_snapshot(path, snapshot)

    def _store_snapshot(self, path: SavePath, snapshot: Snapshot) -> Snapshot | None:
        """Stores a snapshot and its window pages, but for those that are stored already. None if one is refused."""
        known = self._stored_window(path, snapshot.position)
        window: list[WindowPage] = []
        for page in snapshot.window:
            stored = known.get((page.start, page.end)) or self._store_window_page(path, page)
            if stored is None:
                break
            window.append(stored)
        is_whole = len(window) == len(snapshot.window)
        record = self._put(path, snapshot) if is_whole else None
        if record is None:
            self._budget.release_unused(page.data for page in window)
            return None
        return Snapshot(snapshot.position, record, tuple(window))

    def _store_window_page(self, path: SavePath, page: WindowPage) -> WindowPage | None:
        record = self._put(path, page)
        return WindowPage(page.start, page.end, record) if record is not None else None

    def _stored_window(self, path: SavePath, position: int) -> dict[Span, WindowPage]:
        """The window pages that the tier has of the point before a position, by their positions."""
        before = path.match.last_point_before(position)
        return {(page.start, page.end): page for page in before.window} if before is not None else {}

    def _snapshot_in_ram(self, path: SavePath, position: int) -> Snapshot | None:
        point = path.ram.point_at(position) if path.ram is not None else None
        return point.snapshot if point is not None else None

    def _snapshot_in_engine(self, path: SavePath, position: int) -> Snapshot | None:
        """The engine can take a snapshot only where the sequence ends."""
        if path.seq is None or position != self._memory.length(path.seq) or not self._memory.is_whole(path.seq):
            return None
        before = (path.ram or path.match).last_point_before(position)
        known = before.window if before is not None else ()
        began = time.perf_counter()
        snapshot = self._memory.save_snapshot(path.seq, known)
        new_bytes = snapshot.nbytes - sum(page.nbytes for page in known if page in snapshot.window)
        self._costs.saw_snapshot(new_bytes, 1000 * (time.perf_counter() - began))
        return snapshot

    def snapshot_bytes(self, path: SavePath, position: int) -> int:
        """About how many bytes a snapshot adds to the tier."""
        known = self._snapshot_in_ram(path, position)
        if known is not None:
            return self._new_bytes(path, known)
        return self._estimated_bytes(path.match, position)

    def _estimated_bytes(self, match: Match, position: int) -> int:
        """Bytes of a snapshot that is not taken yet, beside the window pages that it would share."""
        before = match.last_point_before(position)
        nbytes = self._memory.snapshot_bytes(position, before.position if before is not None else 0)
        return nbytes + self._overhead_bytes if nbytes else 0  # attention alone has none

    def _new_bytes(self, path: SavePath, snapshot: Snapshot) -> int:
        """Bytes of a snapshot, without window pages that the tier has of the point before it."""
        stored = self._stored_window(path, snapshot.position)
        new = [page.nbytes for page in snapshot.window if (page.start, page.end) not in stored]
        return snapshot.data.nbytes + sum(new) + (1 + len(new)) * self._overhead_bytes
