"""Chooses where a prompt is resumed: the cheapest of all ways, in estimated milliseconds.

A way takes attention from a sequence in the engine, pages from the trees, and a snapshot at the resume point:

    [0 ···· shared with a sequence in the engine ···· s)[s ···· pages ···· r)[r ···· to be computed ···· n)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from leftoff.cache.cargo import Cargo
from leftoff.cache.costs import Costs
from leftoff.cache.lookup import Lookup
from leftoff.cache.placement import Placement
from leftoff.cache.resume_point import ResumePoint, is_on_disk
from leftoff.cache.sequences import EngineSequence, Shared
from leftoff.engine.memory.base import Memory, PagePart, Share, Snapshot
from leftoff.types import Tokens


@dataclass(frozen=True)
class Plan:
    """One way to resume. `point` gives the snapshot, unless the sequence stands, or can be cut to stand, there."""

    resume: int
    sequence: EngineSequence | None = None
    shared: int = 0
    point: ResumePoint | None = None
    sequence_stands_there: bool = False

    @property
    def share(self) -> Share | None:
        return Share(self.sequence.seq, self.shared) if self.sequence is not None and self.shared else None

    @property
    def snapshot(self) -> Snapshot | None:
        return self.point.snapshot if self.point is not None and not self.sequence_stands_there else None

    @property
    def goes_on(self) -> bool:
        """The sequence in the engine stands exactly where the prompt goes on: nothing is moved."""
        return self.sequence is not None and self.sequence_stands_there and self.resume == self.sequence.length

    @property
    def is_cut_back(self) -> bool:
        """The sequence in the engine has gone on past the resume point, and is cut."""
        return self.sequence_stands_there and not self.goes_on

    @property
    def source(self) -> str:
        if self.resume == 0:
            return "nothing"
        if self.goes_on:
            return "a live slot" if self.sequence is not None and self.sequence.is_slot else "a parked state"
        if self.sequence_stands_there:
            return "a shared slot"
        return "RAM"


class Planner:
    """Pure: looks at what is there, changes nothing."""

    def __init__(self, memory: Memory, costs: Costs, placement: Placement | None = None) -> None:
        """Where the placement has a grid, prompts resume from the trees at positions of the grid, and nowhere else."""
        self._memory = memory
        self._costs = costs
        self._placement = placement or Placement()

    def best(self, tokens: Tokens, found: Lookup, shared: Shared) -> Plan:
        """The cheapest way; the one that resumes latest among equals."""
        length = int(tokens.size)
        best = Plan(0)
        best_ms = self.cost_ms(best, found, length)
        for plan in self.candidates(tokens, found, shared):
            if plan.point is not None and self._costs.prefill_ms(length - plan.resume) > best_ms:
                break  # points come latest first: what is left to compute only grows
            cost_ms = self.cost_ms(plan, found, length)
            if (cost_ms, -plan.resume) < (best_ms, -best.resume):
                best, best_ms = plan, cost_ms
        return best

    def candidates(self, tokens: Tokens, found: Lookup, shared: Shared) -> Iterator[Plan]:
        """Those of the sequences in the engine, then those of the trees, latest first."""
        length = int(tokens.size)
        points = [point for point in found.points() if point.position < length or point.logits is not None]
        if self._placement.grid:
            on_grid = self._placement.on_grid
            points, shared = [point for point in points if point.position == on_grid(point.position)], {}
        for sequence, common in shared.items():
            yield from self._from_sequence(sequence, common, length, points)
        if not self._memory.kind.has_snapshots:
            points += self._anywhere(found, length)
        yield from self._from_trees(points, found, shared)

    def cost_ms(self, plan: Plan, found: Lookup, length: int) -> float:
        costs, snapshot = self._costs, plan.snapshot
        snapshot_bytes = snapshot.nbytes if snapshot is not None else 0
        page_bytes = self._memory.page_bytes(plan.resume - plan.shared) if self._needs_pages(plan) else 0
        disk_bytes = snapshot_bytes if is_on_disk(snapshot) else 0
        if page_bytes and found.parts_on_disk:
            disk_bytes += sum(part.page.nbytes for part in _between(found.parts_on_disk, plan.shared, plan.resume))
        loading = costs.load_ms(snapshot_bytes) + costs.load_ms(page_bytes) + costs.disk_ms(disk_bytes)
        return costs.prefill_ms(length - plan.resume) + loading

    def cargo(self, plan: Plan, found: Lookup) -> Cargo:
        """What the way loads."""
        pages = _between(found.parts, plan.shared, plan.resume) if self._needs_pages(plan) else ()
        return Cargo(tuple(pages), plan.snapshot)

    def _needs_pages(self, plan: Plan) -> bool:
        return self._memory.kind.has_pages and plan.shared < plan.resume

    def _from_sequence(
        self, sequence: EngineSequence, common: int, length: int, points: list[ResumePoint]
    ) -> Iterator[Plan]:
        """The sequence in the engine stands, or can be cut to stand, at the resume point."""
        logits_kept = bool(points) and points[-1].position == length
        for resume in {common, length - 1} if common == length else {common}:
            usable = resume < length or (logits_kept and common == length)
            if resume > 0 and usable and self._memory.can_cut(sequence.seq, resume):
                yield Plan(
                    resume, sequence, resume, points[-1] if resume == length else None, sequence_stands_there=True
                )

    def _from_trees(self, points: list[ResumePoint], found: Lookup, shared: Shared) -> Iterator[Plan]:
        """A point's snapshot, with attention from the sequence that shares most and pages for the rest."""
        sequence = max(shared, key=shared.__getitem__, default=None)
        common = shared[sequence] if sequence is not None and self._memory.kind.has_pages else 0
        for point in sorted(points, key=attrgetter("position"), reverse=True):
            use = min(common, point.position)
            if not self._memory.kind.has_pages or use == point.position or found.covers(use, point.position):
                yield Plan(point.position, sequence if use else None, use, point)

    def _anywhere(self, found: Lookup, length: int) -> list[ResumePoint]:
        """Attention alone can be resumed anywhere: as far as the match goes."""
        position = min(found.length, length - 1)
        if position <= 0:
            return []
        node = found.deepest.node_at(position)
        assert node is not None
        covered = max((end for start, end in found.runs if start < position), default=0)
        position = self._placement.on_grid(min(position, covered))
        return [ResumePoint(node, position)] if position else []


def _between(parts: Sequence[PagePart], start: int, end: int) -> Iterator[PagePart]:
    """What of the parts lies in [start, end)."""
    for part in parts:
        if part.end > start and part.start < end:
            yield PagePart(part.page, max(part.start, start), min(part.end, end))
