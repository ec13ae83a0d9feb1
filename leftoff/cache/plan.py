"""Decides where a prompt is resumed: the cheapest of all possible plans, in estimated milliseconds.

A plan shares attention cells with a sequence in the engine, loads pages, and loads the snapshot of the resume point:

    [0 ···· shared with a sequence ···· s)[s ···· pages ···· r)[r ···· prefill ···· n)
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TypeVar

from leftoff.cache.blob_store import BlobStore, Item, Record, store_of
from leftoff.cache.costs import Costs
from leftoff.cache.fetch import Fetches
from leftoff.cache.lookup import Lookup
from leftoff.cache.node import ResumePoint
from leftoff.cache.placement import Placement
from leftoff.cache.report import Origin, Reuse
from leftoff.cache.sequences import EngineSequence
from leftoff.engine.memory.base import Memory, Page, PagePart, Share, Snapshot, WindowPage, parts_between
from leftoff.picture_tokens import uncut

_Item = TypeVar("_Item", Page, WindowPage, Snapshot)

_UNNOTICED_MS = 1.0  # by which reading all of a prompt must be faster than resuming it


@dataclass(frozen=True)
class Plan:
    """How to resume a prompt: what is shared, what is loaded, and what remains to be prefilled.

    With `sequence_stands_there`, the sequence ends at the resume point or can be cut there, and no snapshot is loaded.
    """

    lookup: Lookup
    resume: int = 0
    sequence: EngineSequence | None = None
    shared: int = 0
    point: ResumePoint | None = None
    sequence_stands_there: bool = False
    pages: Sequence[PagePart] = ()
    snapshot: Snapshot | None = None
    fetched: Sequence[Record] = ()  # records of the pages and the snapshot that were fetched

    @property
    def share(self) -> Share | None:
        return Share(self.sequence.seq, self.shared) if self.sequence is not None and self.shared else None

    @property
    def goes_on(self) -> bool:
        """The sequence ends exactly at the resume point: nothing is cut or loaded."""
        return self.sequence is not None and self.sequence_stands_there and self.resume == self.sequence.length

    @property
    def source(self) -> str:
        """Where the prefix comes from, in a word for the reuse report: of several tiers, the slowest."""
        if self.resume == 0:
            return "nothing"
        if self.fetched:
            origins = {record.store.origin for record in self.fetched}
            return [origin.value for origin in Origin if origin in origins][-1]
        if self.goes_on:
            return "a live slot"
        if self.sequence_stands_there:
            return "a shared slot"
        return "RAM"

    @property
    def reuses(self) -> tuple[Reuse, ...]:
        """Where each reused token was, for the reuse report. Without pages, all of it is in the snapshot."""
        found: list[Reuse] = []
        if self.sequence is not None and self.shared:
            ahead = min(self.sequence.ahead_from or self.shared, self.shared) if self.goes_on else self.shared
            found.append(Reuse(Origin.LIVE if self.goes_on else Origin.SHARED, 0, ahead))
            found.append(Reuse(Origin.READ_AHEAD, ahead, self.shared))
        if self.pages:
            parts = parts_between(self.lookup.parts, self.shared, self.resume)
            found += [Reuse(_origin(part.page), part.start, part.end) for part in parts]
        elif self.point is not None:
            found.append(Reuse(_origin(self.point.snapshot), self.shared, self.resume))
        return tuple(part for part in found if part.start < part.end)

    @property
    def num_page_tokens(self) -> int:
        return sum(part.num_tokens for part in self.pages)

    @property
    def loaded_bytes(self) -> int:
        return sum(part.page.nbytes for part in self.pages) + (self.snapshot.nbytes if self.snapshot else 0)

    @property
    def records(self) -> list[Record]:
        """The records to fetch before loading, in the order in which they are loaded."""
        items: list[Item] = [part.page for part in self.pages]
        if self.snapshot is not None:
            items += (*self.snapshot.window, self.snapshot)
        return list({item.data: None for item in items if isinstance(item.data, Record)})

    def with_fetched(self, fetch: Fetches) -> "Plan | None":
        """This plan with everything in RAM. None if part of it is lost."""
        items: dict[Record, Item] = {}
        for record in self.records:
            item = fetch.item(record)
            if item is None:
                return None
            items[record] = item
        pages = [PagePart(_in_ram(part.page, items), part.start, part.end) for part in self.pages]
        snapshot = _snapshot_in_ram(self.snapshot, items) if self.snapshot is not None else None
        return replace(self, pages=pages, snapshot=snapshot, fetched=self.records)


class Planner:
    """Compares plans. Changes nothing."""

    def __init__(self, memory: Memory, costs: Costs, placement: Placement | None = None) -> None:
        """If the placement has a grid, prompts are resumed at its positions only, and from the trees alone."""
        self._memory = memory
        self._costs = costs
        self._placement = placement or Placement()

    def best(self, lookup: Lookup, besides: Container[EngineSequence] = ()) -> Plan:
        """The cheapest plan; among equals, the one that resumes latest. Sequences in `besides` are not used.

        Nothing is read again to save a time that nobody notices: a fast GPU prefills some hundred tokens of a small
        model sooner than one call loads them.
        """
        length = int(lookup.tokens.size)
        best, best_ms = Plan(lookup), self._costs.prefill_ms(length) + _UNNOTICED_MS
        for plan in self.candidates(lookup, besides):
            prefill_ms = self._costs.prefill_ms(length - plan.resume)
            if plan.point is not None and prefill_ms > best_ms:
                break  # resume points come latest first: what is left to prefill only grows
            cost_ms = prefill_ms + self.loading_ms(plan)
            if (cost_ms, -plan.resume) < (best_ms, -best.resume):
                best, best_ms = plan, cost_ms
        pages = parts_between(lookup.parts, best.shared, best.resume) if self._needs_pages(best) else ()
        return replace(best, pages=tuple(pages))

    def candidates(self, lookup: Lookup, besides: Container[EngineSequence] = ()) -> Iterator[Plan]:
        """Plans from sequences in the engine, then those from the trees, latest resume point first. Without pages."""
        length = int(lookup.tokens.size)
        points = [point for point in lookup.points() if point.position < length or _is_enough(lookup, point)]
        shared = {sequence: common for sequence, common in lookup.shared.items() if sequence not in besides}
        if self._placement.grid:
            pictures, on_grid = lookup.pictures, self._placement.on_grid
            points, shared = [point for point in points if point.position == on_grid(point.position, pictures)], {}
        for sequence, common in shared.items():
            yield from self._from_sequence(lookup, sequence, common, points)
        if not self._memory.kind.has_snapshots:
            points += self._anywhere(lookup)
        yield from self._from_trees(lookup, points, shared)

    def loading_ms(self, plan: Plan) -> float:
        """Loading pages and snapshot, and before that fetching those that lie below RAM."""
        costs, snapshot = self._costs, plan.snapshot
        snapshot_bytes = snapshot.nbytes if snapshot is not None else 0
        page_bytes = self._memory.page_bytes(plan.resume - plan.shared) if self._needs_pages(plan) else 0
        loading = costs.load_ms(snapshot_bytes) + costs.load_ms(page_bytes)
        if not plan.lookup.lower:
            return loading
        below: list[Item] = [*snapshot.window, snapshot] if snapshot is not None and store_of(snapshot) else []
        if page_bytes and plan.lookup.parts_below:
            below += [part.page for part in parts_between(plan.lookup.parts_below, plan.shared, plan.resume)]
        return loading + _fetch_ms(below) if below else loading

    def _needs_pages(self, plan: Plan) -> bool:
        return self._memory.kind.has_pages and plan.shared < plan.resume

    def _from_sequence(
        self, lookup: Lookup, sequence: EngineSequence, common: int, points: list[ResumePoint]
    ) -> Iterator[Plan]:
        """The sequence ends, or can be cut to end, at the resume point."""
        length = int(lookup.tokens.size)
        at_end = points[-1] if points and points[-1].position == length else None
        for resume in {common, length - 1} if common == length else {common}:
            usable = resume < length or at_end is not None or lookup.is_only_read
            if resume > 0 and usable and self._memory.can_cut(sequence.seq, resume):
                point = at_end if resume == length else None
                yield Plan(lookup, resume, sequence, resume, point, sequence_stands_there=True)

    def _from_trees(
        self, lookup: Lookup, points: list[ResumePoint], shared: Mapping[EngineSequence, int]
    ) -> Iterator[Plan]:
        """The snapshot of a point, attention from the sequence with the longest common prefix, pages for the rest."""
        sequence = max(shared, key=shared.__getitem__, default=None)
        common = shared[sequence] if sequence is not None and self._memory.kind.has_pages else 0
        for point in sorted(points, key=attrgetter("position"), reverse=True):
            use = min(common, point.position)
            if not self._memory.kind.has_pages or use == point.position or lookup.covers(use, point.position):
                yield Plan(lookup, point.position, sequence if use else None, use, point, snapshot=point.snapshot)

    def _anywhere(self, lookup: Lookup) -> list[ResumePoint]:
        """Attention alone can be resumed at any covered position: at the last one of the match."""
        length = int(lookup.tokens.size)
        position = min(lookup.deepest.length, length if lookup.is_only_read else length - 1)
        if position <= 0:
            return []
        node = lookup.deepest.node_at(position)
        assert node is not None
        covered = max((end for start, end in lookup.covered if start < position), default=0)
        position = self._placement.on_grid(uncut(lookup.pictures, min(position, covered)), lookup.pictures)
        return [ResumePoint(node, position)] if position else []


def _is_enough(lookup: Lookup, point: ResumePoint) -> bool:
    """Whether a prompt that ends at a point needs no more than is kept there."""
    return point.logits is not None or lookup.is_only_read


def _origin(item: Item | None) -> Origin:
    store = store_of(item)
    return store.origin if store is not None else Origin.RAM


def _fetch_ms(below: Sequence[Item]) -> float:
    """Fetching items from their blob stores, which deliver at the same time."""
    sizes: dict[BlobStore, list[int]] = {}
    for item in below:
        if (store := store_of(item)) is not None:
            sizes.setdefault(store, []).append(item.data.nbytes)
    return max(store.costs.fetch_ms(sum(nbytes), len(nbytes)) for store, nbytes in sizes.items())


def _snapshot_in_ram(snapshot: Snapshot, fetched: Mapping[Record, Item]) -> Snapshot:
    window = tuple(_in_ram(page, fetched) for page in snapshot.window)
    return Snapshot(snapshot.position, _in_ram(snapshot, fetched).data, window)


def _in_ram(item: _Item, fetched: Mapping[Record, Item]) -> _Item:
    if not isinstance(item.data, Record):
        return item
    found = fetched[item.data]
    assert isinstance(found, type(item))
    return found
