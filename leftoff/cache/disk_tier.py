"""The tier on disk: the same trees as in RAM, with records of a blob store instead of bytes. It outlives the process.

Pages and durable resume points are copied here when a conversation rests. What a prompt needs from here is fetched into
RAM by other threads, while the engine serves other requests, and is loaded from there.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field

from leftoff.cache.blob_store import BlobStore, Item, Record
from leftoff.cache.budget import Clock
from leftoff.cache.costs import Costs
from leftoff.cache.policy import Policy, ValuePerByte
from leftoff.cache.save import Saver
from leftoff.cache.sequences import EngineSequence
from leftoff.cache.tier import Tier
from leftoff.cache.tree import Match
from leftoff.engine.errors import BlobError
from leftoff.engine.memory.base import Bytes, Memory, Page, Snapshot

PATIENCE_S = 30.0  # with a disk that delivers nothing at all: a slow one delivers something
GRACE_S = 1.0  # for a new fetch from a disk that seems to hang: it may be one file only, or over


@dataclass(frozen=True)
class DiskSettings:
    """Where a disk tier stores its blobs, and how many bytes they may have."""

    blobs: BlobStore
    budget_bytes: int
    policy: Policy = field(default_factory=ValuePerByte)


class DiskTier(Tier):
    """Pages and snapshots in a blob store."""

    def __init__(self, settings: DiskSettings, clock: Clock, memory: Memory, costs: Costs, page_tokens: int) -> None:
        super().__init__("disk", settings.budget_bytes, settings.policy, clock, self._remove_blob)
        self.blobs = settings.blobs
        self.watch = Watch()
        self._has_snapshots = memory.kind.has_snapshots
        self._saver = Saver(memory, costs, self, page_tokens, self.blobs)
        self._insert_stored()

    def save(self, sequence: EngineSequence, ram: Match) -> None:
        """Copies what is lacking here of an idle sequence, as far as the budget and the disk's speed allow."""
        self.forget_lost()
        path = self._saver.path(sequence, ram)
        if self._has_snapshots:
            for position in [point.position for point in ram.points() if point.is_durable]:
                self._saver.save_point(path, position, is_durable=True)
        self._saver.save_all(path)

    def save_point(self, sequence: EngineSequence, ram: Match) -> None:
        """Copies the resume point at the end of a running sequence: RAM may evict it before the sequence is idle."""
        self._saver.save_point(self._saver.path(sequence, ram), sequence.length, is_durable=True)

    def fetch(self, records: Sequence[Record]) -> "Fetch":
        """Starts reading into RAM."""
        self.blobs.record_hits(records)
        return Fetch(self.blobs, records, self.watch)

    def forget_lost(self) -> None:
        """Forgets records that could not be written after all, or were found damaged."""
        self.forget(*self.blobs.take_lost())

    def forget(self, *records: Record) -> None:
        """Removes lost records from the trees, all in one walk: there may be thousands, and the engine waits."""
        lost: set[Bytes] = {*records}
        if not lost:
            return
        for tree in self.trees.values():
            for node in list(tree.nodes()):
                for point in [p for p in node.points if p.snapshot is not None and p.snapshot.data in lost]:
                    self.budget.drop(point)
                self.budget.drop_lost_pages(node, lost)

    def _remove_blob(self, data: Bytes) -> None:
        assert isinstance(data, Record)
        self.blobs.remove(data)

    def _insert_stored(self) -> None:
        """Builds the trees from what earlier processes left. All paths first: a later one may split a node in two."""
        paths = list(self.blobs.stored_paths())
        for path in paths:
            self.insert(path.namespace, path.tokens)
        for path in paths:
            match = self.match(path.namespace, path.tokens)
            for item, age_s in zip(path.items, path.ages_s, strict=True):
                if isinstance(item, Page):
                    self.budget.add_page(match, item)
                if isinstance(item, Snapshot) or not self._has_snapshots:
                    end, snapshot = (item.end, None) if isinstance(item, Page) else (item.position, item)
                    point = self.budget.add_point(match, end, snapshot, is_durable=True)
                    self.budget.set_age(point, age_s)
        for tree in self.trees.values():
            for leaf in [node for node in tree.nodes() if node.is_leaf]:
                self.budget.drop_useless_pages(leaf)
        self.budget.make_room(0)


class Watch:
    """Notices when a blob store delivers nothing any more: the engine's thread must not hang with a disk.

    Time counts from the last item that arrived for any fetch, so one that queues behind others is not late.
    """

    def __init__(self, patience_s: float = PATIENCE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience_s = patience_s
        self._awaited: set[Future[Item]] = set()
        self._last_arrival = clock()
        self.clock = clock

    def add(self, future: Future[Item]) -> None:
        """Waits for its item from now on."""
        if future.done():  # it was still in memory, and says nothing about the disk
            return
        if not self._awaited:
            self._last_arrival = self.clock()
        self._awaited.add(future)
        future.add_done_callback(self._note)

    def left_s(self, asked: float) -> float:
        """How much longer a fetch begun at `asked` waits, if nothing arrives."""
        until = max(self._last_arrival + self._patience_s, asked + GRACE_S)
        return max(0.0, until - self.clock())

    def _note(self, future: Future[Item]) -> None:
        self._last_arrival = self.clock()
        self._awaited.discard(future)


class Fetch:
    """Records being read into RAM. Reading starts at once; the items live as long as this object."""

    def __init__(self, blobs: BlobStore, records: Sequence[Record], watch: Watch) -> None:
        self._began = self._ended = time.perf_counter()
        self._futures: dict[Record, Future[Item]] = dict(zip(records, blobs.get(records), strict=True))
        # for the measured rate: what was still waiting to be written has come from memory
        self.nbytes = sum(record.nbytes for record, future in self._futures.items() if not future.done())
        self._watch = watch
        self._asked = watch.clock()
        for future in self._futures.values():
            watch.add(future)
            future.add_done_callback(self._note_end)

    @property
    def is_done(self) -> bool:
        """Everything has arrived, or the blob store hangs and is not waited for."""
        return self._has_arrived or not self._watch.left_s(self._asked)

    def when_done(self, call: Callable[[], None]) -> None:
        """Calls back when everything has arrived, on the thread that read the last item."""
        for future in self._futures.values():
            future.add_done_callback(lambda _: call() if self._has_arrived else None)

    @property
    def ms(self) -> float:
        """How long it took until the last item arrived."""
        return 1000 * (self._ended - self._began)

    def has(self, records: Sequence[Record]) -> bool:
        """All of them were asked for."""
        return all(record in self._futures for record in records)

    def item(self, record: Record) -> Item | None:
        """Waits for one item. None if it is lost, or the blob store hangs."""
        future = self._futures[record]
        while not future.done() and (left_s := self._watch.left_s(self._asked)):
            wait([future], left_s)
        try:
            return future.result(0)
        except (BlobError, TimeoutError):
            return None

    def lost(self) -> list[Record]:
        """The records that did not arrive."""
        return [record for record in self._futures if self.item(record) is None]

    @property
    def _has_arrived(self) -> bool:
        return all(future.done() for future in self._futures.values())

    def _note_end(self, _: Future[Item]) -> None:
        self._ended = time.perf_counter()
