"""The tier on disk: the same trees, with records instead of bytes, that outlive the process.

What is in RAM is copied here when a conversation rests: its pages, and the resume points that are marks. What a prompt
needs from here is fetched into RAM and loaded from there.
"""

from collections.abc import Sequence

from leftoff.cache.blob_store import BlobStore, Item, Record
from leftoff.cache.budget import Clock
from leftoff.cache.fetch import Fetch, Watch
from leftoff.cache.policy import Policy
from leftoff.cache.save import Saver
from leftoff.cache.sequences import EngineSequence
from leftoff.cache.source import EngineSource
from leftoff.cache.tier import Tier
from leftoff.cache.tree import Match
from leftoff.engine.memory.base import Bytes, Memory, Page, Snapshot


class DiskTier(Tier):
    def __init__(
        self,
        blobs: BlobStore,
        budget_bytes: int,
        policy: Policy,
        clock: Clock,
        memory: Memory,
        source: EngineSource,
        page_tokens: int,
    ) -> None:
        super().__init__("disk", budget_bytes, policy, clock, self._release)
        self.blobs = blobs
        self._memory = memory
        self._source = source
        self._page_tokens = page_tokens
        self.watch = Watch()
        self._recall()

    def keep(self, sequence: EngineSequence, ram: Match) -> None:
        """Copies what is lacking here of a sequence that rests, as far as the budget and the disk's pace allow."""
        self.settle()
        source = _Copies(self.blobs, self._source, sequence, ram)
        saver = Saver(self._memory, self.budget, source, self._page_tokens)
        tree, match = self.tree(sequence.namespace), self.insert(sequence.namespace, sequence.tokens)
        if self._memory.kind.has_snapshots:
            for position in [point.position for point in ram.points() if point.is_durable]:
                saver.keep_point(tree, match, sequence, position, is_durable=True)
        saver.keep_all(tree, match, sequence)

    def keep_durable(self, sequence: EngineSequence, ram: Match) -> None:
        """Copies the resume point where the sequence stands: RAM may have lost it before the sequence rests."""
        tree, match = self.tree(sequence.namespace), self.insert(sequence.namespace, sequence.tokens)
        saver = Saver(self._memory, self.budget, _Copies(self.blobs, self._source, sequence, ram), self._page_tokens)
        saver.keep_point(tree, match, sequence, sequence.length, is_durable=True)

    def fetch(self, items: Sequence[Item]) -> Fetch:
        records = [item.data for item in items if isinstance(item.data, Record)]
        self.blobs.used(records)
        return Fetch(self.blobs, records, self.watch)

    def settle(self) -> None:
        """Forgets what could not be written after all, or was found damaged."""
        self.forget(*self.blobs.settle())

    def forget(self, *records: Record) -> None:
        """All in one walk: a folder that is gone takes thousands along, and the engine waits for this."""
        lost: set[Bytes] = {*records}
        if not lost:
            return
        for tree in self.trees.values():
            for node in list(tree.nodes()):
                for point in [e for e in node.points if e.snapshot is not None and e.snapshot.data in lost]:
                    self.budget.drop(point)
                self.budget.drop_lost_pages(tree, node, lost)

    def _release(self, data: Bytes) -> None:
        assert isinstance(data, Record)
        self.blobs.remove(data)

    def _recall(self) -> None:
        """What an earlier process has left. All paths first: a later one may part an earlier one in two."""
        paths = list(self.blobs.recall())
        for path in paths:
            self.insert(path.namespace, path.tokens)
        for path in paths:
            tree, match = self.tree(path.namespace), self.match(path.namespace, path.tokens)
            for item, age_s in zip(path.items, path.ages_s, strict=True):
                if isinstance(item, Page):
                    self.budget.add_page(tree, match, item)
                if isinstance(item, Snapshot) or not self._memory.kind.has_snapshots:
                    end, snapshot = (item.end, None) if isinstance(item, Page) else (item.position, item)
                    point = self.budget.add_point(tree, match, end, snapshot, is_durable=True)
                    self.budget.set_age(point, age_s)
        for tree in self.trees.values():
            for leaf in [node for node in tree.nodes() if node.is_leaf]:
                self.budget.drop_useless_pages(tree, leaf)
        self.budget.make_room(0)


class _Copies:
    """Puts on the shelf what the tier in RAM has of a sequence, else what the engine has."""

    def __init__(self, blobs: BlobStore, engine: EngineSource, sequence: EngineSequence, ram: Match) -> None:
        self._blobs = blobs
        self._engine = engine
        self._namespace = sequence.namespace
        self._tokens = sequence.tokens.copy()
        self._ram = ram

    def page_bytes(self, num_tokens: int) -> int:
        return self._engine.page_bytes(num_tokens) + self._blobs.overhead_bytes

    def snapshot_bytes(self, position: int) -> int:
        known = self._snapshot_in_ram(position)
        return (known.nbytes if known else self._engine.snapshot_bytes(position)) + self._blobs.overhead_bytes

    def nbytes(self, item: Item) -> int:
        return item.nbytes + self._blobs.overhead_bytes

    def page(self, sequence: EngineSequence, start: int, end: int) -> Page:
        page = self._ram.page_at(start, end)
        if page is not None and (page.start, page.end) == (start, end):  # else other sequences have another end of it
            return page
        return self._engine.page(sequence, start, end)

    def snapshot(self, sequence: EngineSequence, position: int) -> Snapshot | None:
        return self._snapshot_in_ram(position) or self._engine.snapshot(sequence, position)

    def put_page(self, page: Page) -> Page | None:
        record = self._blobs.put(page, self._namespace, self._tokens)
        return Page(page.start, page.end, record) if record is not None else None

    def put_snapshot(self, snapshot: Snapshot) -> Snapshot | None:
        record = self._blobs.put(snapshot, self._namespace, self._tokens)
        return Snapshot(snapshot.position, record) if record is not None else None

    def _snapshot_in_ram(self, position: int) -> Snapshot | None:
        point = self._ram.point_at(position)
        return point.snapshot if point is not None else None
