"""Puts what a tier lacks of a sequence in the engine into it: resume points while a prompt is read, pages behind them.

The tree is the only record of what is saved: a page is made for what no stretch covers, so that a header shared by
any number of conversations is stored once.
"""

from collections.abc import Iterable, Iterator, Sequence

from leftoff.cache.budget import ByteBudget
from leftoff.cache.resume_point import ResumePoint
from leftoff.cache.sequences import EngineSequence
from leftoff.cache.source import Source
from leftoff.cache.tree import Match, Tree
from leftoff.engine.memory.base import Memory, Snapshot
from leftoff.types import Logits

Span = tuple[int, int]  # of positions, as [start, end)


class Saver:
    """Moves bytes; decides nothing but how they are cut into pages."""

    def __init__(self, memory: Memory, store: ByteBudget, source: Source, page_tokens: int) -> None:
        self._memory = memory
        self._budget = store
        self._source = source
        self._page_tokens = page_tokens

    def keep_point(
        self,
        tree: Tree,
        match: Match,
        sequence: EngineSequence,
        position: int,
        logits: Logits | None = None,
        *,
        is_durable: bool = False,
    ) -> ResumePoint | None:
        """A resume point. None if the snapshot there cannot be had, or the budget has no room for it."""
        known = match.point_at(position)
        if known is not None and (logits is None or known.logits is not None):
            known.is_durable |= is_durable
            return known
        logits_bytes = logits.nbytes if logits is not None else 0
        wants_snapshot = self._memory.kind.has_snapshots and (known is None or known.snapshot is None)
        estimate = self._source.snapshot_bytes(position) if wants_snapshot else 0
        # it must not make room for its own logits: what is left would be a resume point without a snapshot
        if not self._budget.make_room(estimate + logits_bytes, [known] if known else []):
            return None
        snapshot = self._put_snapshot(sequence, position, logits_bytes) if wants_snapshot else None
        if wants_snapshot and snapshot is None:
            return None
        return self._budget.add_point(tree, match, position, snapshot, logits, is_durable=is_durable)

    def _put_snapshot(self, sequence: EngineSequence, position: int, logits_bytes: int) -> Snapshot | None:
        """Room was made for an estimate: now that its size is known, it is made once more."""
        snapshot = self._source.snapshot(sequence, position)
        if snapshot is None or not self._budget.make_room(self._source.nbytes(snapshot) + logits_bytes):
            return None
        return self._source.put_snapshot(snapshot)

    def keep_behind(self, tree: Tree, match: Match, sequence: EngineSequence) -> None:
        """Whole pages up to the last resume point, if there is room: what is worth making room is seen at the end.

        Without a resume point behind them, pages lead nowhere.
        """
        if self._source.page_bytes(self._page_tokens) > self._budget.free_bytes:
            return
        known = sequence.length
        if self._memory.kind.has_snapshots:
            point = match.last_point()
            known = point.position if point is not None else 0
        pages = list(self._missing_pages(match, known - known % self._page_tokens))
        if self._nbytes(pages) <= self._budget.free_bytes:
            self._keep_pages(tree, match, sequence, pages)

    def keep_all(self, tree: Tree, match: Match, sequence: EngineSequence) -> bool:
        """Everything up to the end of the sequence, or as much of it as the budget allows. True if it was all."""
        for end in self._ends(match, sequence):
            if self._keep_until(tree, match, sequence, end):
                return end == sequence.length
        return False

    def keep_ahead(self, tree: Tree, match: Match, sequence: EngineSequence) -> None:
        """Everything, if it costs nothing of use: the engine has it, and what leaves it is kept then."""
        lacking = self.lacking_bytes(match, sequence)
        if lacking and self._memory.is_whole(sequence.seq) and self._budget.clear_out(lacking):
            self._keep_until(tree, match, sequence, sequence.length)

    def lacking_bytes(self, match: Match, sequence: EngineSequence) -> int:
        """About what is not kept of a sequence in the engine; 0 if all of it is."""
        kind, nbytes = self._memory.kind, 0
        if kind.has_pages and (missing := sequence.length - match.num_covered):
            whole, rest = divmod(missing, self._page_tokens)
            nbytes = whole * self._source.page_bytes(self._page_tokens) + self._source.page_bytes(rest)
        if kind.has_snapshots and match.point_at(sequence.length) is None:
            nbytes += self._source.snapshot_bytes(sequence.length)
        return nbytes

    def _ends(self, match: Match, sequence: EngineSequence) -> Iterator[int]:
        """How far to keep, best first: all of it, else up to an earlier resume point."""
        if self._memory.is_whole(sequence.seq):
            yield sequence.length
        if self._memory.kind.has_snapshots:
            yield from (point.position for point in reversed(list(match.points())))
        else:
            yield from (sequence.length * quarter // 4 for quarter in (3, 2, 1))

    def _keep_until(self, tree: Tree, match: Match, sequence: EngineSequence, end: int) -> bool:
        if not self._fits(match, end):
            return False
        point = match.point_at(end)
        if point is None and end == sequence.length and self._memory.kind.has_snapshots:
            point = self.keep_point(tree, match, sequence, end, is_durable=True)
            if point is None:
                return False
        # what goes to make room may have covered part of this path: then more is missing than before
        while (nbytes := self._nbytes(pages := list(self._missing_pages(match, end)))) > self._budget.free_bytes:
            if not self._budget.make_room(nbytes, [point] if point else []):
                return False
        return self._keep_pages(tree, match, sequence, pages)

    def _keep_pages(self, tree: Tree, match: Match, sequence: EngineSequence, pages: Sequence[Span]) -> bool:
        return all(self._keep_page(tree, match, sequence, start, end) for start, end in pages)

    def _keep_page(self, tree: Tree, match: Match, sequence: EngineSequence, start: int, end: int) -> bool:
        page = self._source.put_page(self._source.page(sequence, start, end))
        if page is None:
            return False
        self._budget.add_page(tree, match, page)
        if not self._memory.kind.has_snapshots:
            self._budget.add_point(tree, match, page.end, None)
        return True

    def _fits(self, match: Match, end: int) -> bool:
        """It could be kept, if at the cost of everything else."""
        missing = self._nbytes(self._missing_pages(match, end))
        if missing + self._source.snapshot_bytes(end) <= self._budget.free_bytes:
            return True
        return missing + self._path_bytes(match, end) <= self._budget.budget_bytes

    def _nbytes(self, pages: Iterable[Span]) -> int:
        return sum(self._source.page_bytes(end - start) for start, end in pages)

    def _path_bytes(self, match: Match, end: int) -> int:
        """What must stay for `end` to be a resume point."""
        covered = {stretch.stored for stretch in match.stretches() if stretch.start < end}
        return sum(stored.nbytes for stored in covered) + self._source.snapshot_bytes(end)

    def _missing_pages(self, match: Match, end: int) -> Iterator[Span]:
        """The uncovered parts of [0, end), cut at multiples of the page size."""
        if not self._memory.kind.has_pages:
            return
        start = 0
        for stretch in (*match.stretches(), None):
            stop = min(stretch.start, end) if stretch else end
            while start < stop:
                border = min(stop, (start // self._page_tokens + 1) * self._page_tokens)
                yield start, border
                start = border
            start = stretch.end if stretch else end
