"""All that is kept: in RAM, and perhaps on a disk behind it. What a turn reads goes into both."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from leftoff.cache.blob_store import BlobStore
from leftoff.cache.budget import Clock
from leftoff.cache.costs import Costs
from leftoff.cache.disk_tier import DiskTier
from leftoff.cache.lookup import Lookup
from leftoff.cache.policy import Policy, ValuePerByte
from leftoff.cache.resume_point import ResumePoint
from leftoff.cache.save import Saver
from leftoff.cache.sequences import EngineSequence, SequenceTable
from leftoff.cache.source import EngineSource
from leftoff.cache.tier import Tier
from leftoff.engine.memory.base import Memory
from leftoff.types import Logits, Tokens

PAGE_TOKENS = 256
SEEN_TOKENS = 16 << 20  # remembered for the report once their data is gone: 64 MiB


@dataclass(frozen=True)
class DiskSettings:
    """A second tier: where it is kept, and how many bytes it may have."""

    blobs: BlobStore
    budget_bytes: int
    policy: Policy = field(default_factory=ValuePerByte)


class Tiers:
    """Iterates over the tiers, the fastest first."""

    def __init__(
        self,
        memory: Memory,
        costs: Costs,
        clock: Clock,
        sequences: SequenceTable,
        ram: Tier,
        disk: DiskSettings | None,
        *,
        page_tokens: int,
        seen_tokens: int,
    ) -> None:
        source = EngineSource(memory, costs)
        self.ram = ram
        self.disk: DiskTier | None = None
        if disk is not None:
            self.disk = DiskTier(disk.blobs, disk.budget_bytes, disk.policy, clock, memory, source, page_tokens)
        self._saver = Saver(memory, ram.budget, source, page_tokens)
        self._sequences = sequences
        self._seen_tokens = seen_tokens
        ram.budget.shed = self._shed

    def __iter__(self) -> Iterator[Tier]:
        yield self.ram
        if self.disk is not None:
            yield self.disk

    def find(self, tokens: Tokens, namespace: str) -> Lookup:
        ram = self.ram.match(namespace, tokens)
        return Lookup(ram, self.disk.match(namespace, tokens)) if self.disk is not None else Lookup(ram)

    def use(self, point: ResumePoint) -> None:
        """It was resumed from."""
        for tier in self:
            if tier.budget.holds(point):
                tier.budget.hit(point)

    # --- while a turn goes on

    def keep_point(
        self, sequence: EngineSequence, logits: Logits | None, *, is_durable: bool, with_pages: bool
    ) -> None:
        """A resume point where the sequence stands, and the pages behind it: so little is left to do at the end."""
        tree, match = self.ram.tree(sequence.namespace), self.ram.insert(sequence.namespace, sequence.tokens)
        point = self._saver.keep_point(tree, match, sequence, sequence.length, logits, is_durable=is_durable)
        self.leave_behind(sequence, point)
        if is_durable and self.disk is not None:
            self.disk.keep_durable(sequence, match)
        if with_pages:
            self._saver.keep_behind(tree, match, sequence)
            sequence.is_doubled = True

    def leave_behind(self, sequence: EngineSequence, point: ResumePoint | None) -> None:
        """The sequence in the engine goes on from a point, which is not the end of the conversation any more."""
        if sequence.point is not None:
            self.ram.budget.hold(sequence.point, held=False)
        sequence.point = point if point is not None and self.ram.budget.holds(point) else None
        if sequence.point is not None:
            self.ram.budget.hold(sequence.point)

    def hold_back(self, *, is_busy: bool) -> None:
        """Whether the engine works: then the disk's threads leave it the cores."""
        if self.disk is not None:
            self.disk.blobs.hold_back(is_busy=is_busy)

    # --- when it rests

    def learn(self, sequence: EngineSequence) -> None:
        """Remembers its tokens, if only to explain."""
        self.ram.insert(sequence.namespace, sequence.tokens)
        self.ram.forget_oldest(self._seen_tokens)

    def save_ahead(self, sequence: EngineSequence) -> None:
        """Puts what the tiers lack of a sequence in the engine into them, if nothing of use has to make way in RAM."""
        if sequence.is_saved:
            return
        sequence.is_saved = sequence.is_doubled = True
        match = self.ram.insert(sequence.namespace, sequence.tokens)
        self._saver.keep_ahead(self.ram.tree(sequence.namespace), match, sequence)
        if self.disk is not None:
            self.disk.keep(sequence, match)
            self.disk.forget_oldest(self._seen_tokens)

    def save(self, sequence: EngineSequence) -> None:
        """The same for one that leaves the engine: as far as the budgets allow."""
        if not sequence.is_empty:
            self.save_ahead(sequence)
            self.leave_behind(sequence, None)
            sequence.is_doubled = False
            match = self.ram.insert(sequence.namespace, sequence.tokens)
            if self._saver.lacking_bytes(match, sequence):
                self._saver.keep_all(self.ram.tree(sequence.namespace), match, sequence)

    def swap(self, leaving: EngineSequence, arriving: Tokens, namespace: str) -> None:
        """Saves what leaves the engine. If room is short, the pages of what arrives make way: they are loaded now."""
        if (lacking := self.lacking_bytes(leaving)) > self.ram.budget.free_bytes:
            tree = self.ram.tree(namespace)
            self.ram.budget.drop_pages(tree, tree.match(arriving), lacking)
        self.save(leaving)

    def keeps(self, sequence: EngineSequence) -> bool:
        """Nothing is lost if it leaves the engine."""
        return not self.lacking_bytes(sequence)

    def lacking_bytes(self, sequence: EngineSequence) -> int:
        """What RAM does not have of it."""
        return self._saver.lacking_bytes(self.ram.match(sequence.namespace, sequence.tokens), sequence)

    def _shed(self, nbytes: int) -> None:
        """Gives up pages in RAM that sequences in the engine hold as well, of those that will stay longest first."""
        doubled = [sequence for sequence in self._sequences if sequence.is_doubled and not sequence.is_empty]
        for sequence in sorted(doubled, key=lambda sequence: (sequence.is_busy, sequence.last_used), reverse=True):
            store, tree = self.ram.budget, self.ram.tree(sequence.namespace)
            store.drop_pages(tree, tree.match(sequence.tokens), nbytes)
            if store.free_bytes >= nbytes:
                return
            sequence.is_doubled = False

    def settle(self) -> None:
        if self.disk is not None:
            self.disk.settle()

    def close(self, timeout_s: float) -> None:
        """Gives the disk so long to write what it was given."""
        if self.disk is not None:
            self.disk.blobs.close(timeout_s)

    # --- for people

    def pin(self, tokens: Tokens, namespace: str) -> int:
        """The bytes that lead to the end of `tokens` and are never evicted now, 0 if it is no resume point."""
        found, nbytes = self.find(tokens, namespace), 0
        for tier in self:
            point = tier.match(namespace, tokens).point_at(int(tokens.size))
            if point is not None:
                tier.budget.pin(point)
                nbytes = nbytes or point.nbytes + sum(part.page.nbytes for part in found.parts)
        return nbytes

    def clear(self, is_meant: Callable[[str], bool]) -> None:
        for tier in self:
            tier.clear(is_meant)

    def check_integrity(self) -> None:
        """Raises AssertionError if anything contradicts itself. For tests."""
        for tier in self:
            tier.check_integrity()
