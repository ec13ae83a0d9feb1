"""Chooses where a prompt is resumed: the cheapest of all ways, in estimated milliseconds.

A way takes attention from a live sequence, pages from the trees, and a snapshot at the resume point:

    [0 ···· shared with a live sequence ···· s)[s ···· pages ···· r)[r ···· to be computed ···· n)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from leftoff.cache.cargo import Cargo
from leftoff.cache.costs import Costs
from leftoff.cache.entry import Entry, is_on_disk
from leftoff.cache.lookup import Found
from leftoff.cache.placement import Placement
from leftoff.cache.sequences import Live, Shared
from leftoff.engine.memory.base import Memory, PagePart, Share, Snapshot
from leftoff.types import Tokens


@dataclass(frozen=True)
class Way:
    """One way to resume. `entry` gives the snapshot, unless the live sequence stands, or can be cut to stand, there."""

    resume: int
    live: Live | None = None
    shared: int = 0
    entry: Entry | None = None
    live_stands_there: bool = False

    @property
    def share(self) -> Share | None:
        return Share(self.live.seq, self.shared) if self.live is not None and self.shared else None

    @property
    def snapshot(self) -> Snapshot | None:
        return self.entry.snapshot if self.entry is not None and not self.live_stands_there else None

    @property
    def goes_on(self) -> bool:
        """The live sequence stands exactly where the prompt goes on: nothing is moved."""
        return self.live is not None and self.live_stands_there and self.resume == self.live.length

    @property
    def is_cut_back(self) -> bool:
        """The live sequence has gone on past the resume point, and is cut."""
        return self.live_stands_there and not self.goes_on

    @property
    def source(self) -> str:
        if self.resume == 0:
            return "nothing"
        if self.goes_on:
            return "a live slot" if self.live is not None and self.live.is_slot else "a parked state"
        if self.live_stands_there:
            return "a shared slot"
        return "RAM"


class Planner:
    """Pure: looks at what is there, changes nothing."""

    def __init__(self, memory: Memory, costs: Costs, placement: Placement | None = None) -> None:
        """Where the placement has a grid, prompts resume from the trees at positions of the grid, and nowhere else."""
        self._memory = memory
        self._costs = costs
        self._placement = placement or Placement()

    def best(self, tokens: Tokens, found: Found, shared: Shared) -> Way:
        """The cheapest way; the one that resumes latest among equals."""
        length = int(tokens.size)
        best = Way(0)
        best_ms = self.cost_ms(best, found, length)
        for way in self.ways(tokens, found, shared):
            if way.entry is not None and self._costs.prefill_ms(length - way.resume) > best_ms:
                break  # entries come latest first: what is left to compute only grows
            cost_ms = self.cost_ms(way, found, length)
            if (cost_ms, -way.resume) < (best_ms, -best.resume):
                best, best_ms = way, cost_ms
        return best

    def ways(self, tokens: Tokens, found: Found, shared: Shared) -> Iterator[Way]:
        """Those of the live sequences, then those of the trees, latest first."""
        length = int(tokens.size)
        entries = [entry for entry in found.entries() if entry.position < length or entry.logits is not None]
        if self._placement.grid:
            on_grid = self._placement.on_grid
            entries, shared = [entry for entry in entries if entry.position == on_grid(entry.position)], {}
        for live, common in shared.items():
            yield from self._from_live(live, common, length, entries)
        if not self._memory.kind.has_snapshots:
            entries += self._anywhere(found, length)
        yield from self._from_trees(entries, found, shared)

    def cost_ms(self, way: Way, found: Found, length: int) -> float:
        costs, snapshot = self._costs, way.snapshot
        snapshot_bytes = snapshot.nbytes if snapshot is not None else 0
        page_bytes = self._memory.page_bytes(way.resume - way.shared) if self._needs_pages(way) else 0
        disk_bytes = snapshot_bytes if is_on_disk(snapshot) else 0
        if page_bytes and found.parts_on_disk:
            disk_bytes += sum(part.page.nbytes for part in _between(found.parts_on_disk, way.shared, way.resume))
        loading = costs.load_ms(snapshot_bytes) + costs.load_ms(page_bytes) + costs.disk_ms(disk_bytes)
        return costs.prefill_ms(length - way.resume) + loading

    def cargo(self, way: Way, found: Found) -> Cargo:
        """What the way loads."""
        pages = _between(found.parts, way.shared, way.resume) if self._needs_pages(way) else ()
        return Cargo(tuple(pages), way.snapshot)

    def _needs_pages(self, way: Way) -> bool:
        return self._memory.kind.has_pages and way.shared < way.resume

    def _from_live(self, live: Live, common: int, length: int, entries: list[Entry]) -> Iterator[Way]:
        """The live sequence stands, or can be cut to stand, at the resume point."""
        logits_kept = bool(entries) and entries[-1].position == length
        for resume in {common, length - 1} if common == length else {common}:
            usable = resume < length or (logits_kept and common == length)
            if resume > 0 and usable and self._memory.can_cut(live.seq, resume):
                yield Way(resume, live, resume, entries[-1] if resume == length else None, live_stands_there=True)

    def _from_trees(self, entries: list[Entry], found: Found, shared: Shared) -> Iterator[Way]:
        """An entry's snapshot, with attention from the live sequence that shares most and pages for the rest."""
        live = max(shared, key=shared.__getitem__, default=None)
        common = shared[live] if live is not None and self._memory.kind.has_pages else 0
        for entry in sorted(entries, key=attrgetter("position"), reverse=True):
            use = min(common, entry.position)
            if not self._memory.kind.has_pages or use == entry.position or found.covers(use, entry.position):
                yield Way(entry.position, live if use else None, use, entry)

    def _anywhere(self, found: Found, length: int) -> list[Entry]:
        """Attention alone can be resumed anywhere: as far as the match goes."""
        position = min(found.length, length - 1)
        if position <= 0:
            return []
        node = found.deepest.node_at(position)
        assert node is not None
        covered = max((end for start, end in found.runs if start < position), default=0)
        position = self._placement.on_grid(min(position, covered))
        return [Entry(node, position)] if position else []


def _between(parts: Sequence[PagePart], start: int, end: int) -> Iterator[PagePart]:
    """What of the parts lies in [start, end)."""
    for part in parts:
        if part.end > start and part.start < end:
            yield PagePart(part.page, max(part.start, start), min(part.end, end))
