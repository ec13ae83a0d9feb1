"""RAM and, if configured, the disk behind it: what is saved of the engine's sequences goes into both."""

from collections.abc import Iterator

from leftoff.cache.budget import Clock
from leftoff.cache.costs import Costs
from leftoff.cache.disk_tier import DiskSettings, DiskTier
from leftoff.cache.node import ResumePoint
from leftoff.cache.save import Saver
from leftoff.cache.sequences import EngineSequence, SequenceTable
from leftoff.cache.tier import Tier
from leftoff.engine.memory.base import Memory
from leftoff.types import Logits, Tokens

PAGE_TOKENS = 256
SEEN_TOKENS = 16 << 20  # kept for reuse reports after their data was evicted: 64 MiB


class Tiers:
    """Iterates over the tiers, the faster first."""

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
        self.ram = ram
        self.disk = DiskTier(disk, clock, memory, costs, page_tokens) if disk is not None else None
        self._saver = Saver(memory, costs, ram, page_tokens)
        self._sequences = sequences
        self._seen_tokens = seen_tokens
        ram.budget.shed = self._drop_pages_in_engine

    def __iter__(self) -> Iterator[Tier]:
        yield self.ram
        if self.disk is not None:
            yield self.disk

    @property
    def num_changes(self) -> int:
        """Grows with every change: a plan made before the last one is stale."""
        return sum(tier.num_changes for tier in self)

    def hit(self, point: ResumePoint) -> None:
        """Records that a prompt was resumed from a point."""
        for tier in self:
            if tier.budget.holds(point):
                tier.budget.hit(point)

    # --- saving

    def save_point(
        self, sequence: EngineSequence, logits: Logits | None, *, is_durable: bool, with_pages: bool
    ) -> None:
        """Saves a resume point at the end of a running sequence, and the pages that lead to it if they are cheap."""
        path = self._saver.path(sequence)
        point = self._saver.save_point(path, sequence.length, logits, is_durable=is_durable)
        sequence.leave_point(point, with_pages=with_pages)
        if with_pages:
            self._saver.save_pages_so_far(path)
        if is_durable and self.disk is not None:
            self.disk.save_point(sequence, path.match)

    def remember(self, sequence: EngineSequence) -> None:
        """Keeps its tokens, if only to explain a later miss."""
        self.ram.insert(sequence.namespace, sequence.tokens)
        self.ram.forget_oldest(self._seen_tokens)

    def write_behind(self, sequence: EngineSequence) -> None:
        """Copies an idle sequence that stays in the engine: to RAM if nothing recent is evicted for it, and to disk."""
        sequence.written_behind()
        path = self._saver.path(sequence)
        self._saver.save_if_cheap(path)
        if self.disk is not None:
            self.disk.save(sequence, path.match)
            self.disk.forget_oldest(self._seen_tokens)

    def save(self, sequence: EngineSequence) -> None:
        """Saves an idle sequence that is about to leave the engine, as far as the budgets allow."""
        if sequence.is_empty:
            return
        if not sequence.is_saved:
            self.write_behind(sequence)
        sequence.saved()
        path = self._saver.path(sequence)
        if self._saver.lacking_bytes(path.match, path.length):  # part of it did not fit, or was evicted since
            self._saver.save_all(path)

    def swap(self, leaving: EngineSequence, arriving: Tokens, namespace: str) -> None:
        """Saves a sequence that is about to be overwritten.

        If RAM is short, it drops pages of the prefix that arrives instead: the engine will hold them.
        """
        if (lacking := self.lacking_bytes(leaving)) > self.ram.budget.free_bytes:
            self.ram.budget.drop_pages(self.ram.match(namespace, arriving), lacking)
        self.save(leaving)

    def lacking_bytes(self, sequence: EngineSequence) -> int:
        """About how many bytes of a sequence RAM does not have. With 0, nothing is lost if it leaves the engine."""
        return self._saver.lacking_bytes(self.ram.match(sequence.namespace, sequence.tokens), sequence.length)

    def _drop_pages_in_engine(self, nbytes: int) -> None:
        """Makes room in RAM by dropping pages that sequences in the engine hold too: running and recent ones first."""
        doubled = [sequence for sequence in self._sequences if sequence.has_ram_pages and not sequence.is_empty]
        for sequence in sorted(doubled, key=lambda each: (each.is_busy, each.last_used), reverse=True):
            self.ram.budget.drop_pages(self.ram.match(sequence.namespace, sequence.tokens), nbytes)
            if self.ram.budget.free_bytes >= nbytes:
                return
            sequence.drop_pages()
