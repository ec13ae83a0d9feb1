"""All tiers: RAM, and those below it, the faster first. What is saved of a sequence is offered to each."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future

from leftoff.cache.blob_store import Record, Wanted
from leftoff.cache.blob_tier import BlobTier, TierSettings
from leftoff.cache.budget import Clock
from leftoff.cache.costs import Costs
from leftoff.cache.fetch import Fetches, Search
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
        lower: Sequence[TierSettings],
        page_tokens: int,
        seen_tokens: int,
    ) -> None:
        self.ram = ram
        self.lower = tuple(BlobTier(settings, clock, memory, costs, page_tokens, ram.budget.lock) for settings in lower)
        self._saver = Saver(memory, costs, ram, page_tokens)
        self._sequences = sequences
        self._seen_tokens = seen_tokens
        ram.budget.shed = self._drop_pages_in_engine

    def __iter__(self) -> Iterator[Tier]:
        yield self.ram
        yield from self.lower

    @property
    def num_changes(self) -> int:
        """Grows with every change: a plan made before the last one is stale."""
        return sum(tier.budget.num_changes for tier in self)

    def hit(self, point: ResumePoint) -> None:
        """Records that a prompt was resumed from a point."""
        for tier in self:
            if tier.budget.holds(point):
                tier.budget.hit(point)

    def known_tokens(self, namespace: str, most: int) -> list[Tokens]:
        """About the latest `most` tokens of a namespace, as the stretches of its fullest tree, the latest last."""
        trees = [tier.trees[namespace] for tier in self if namespace in tier.trees]
        if not trees:
            return []
        latest: list[Tokens] = []
        for node in sorted(max(trees, key=lambda tree: tree.num_tokens).nodes(), key=lambda node: -node.last_used):
            latest.insert(0, node.tokens)
            most -= node.tokens.size
            if most <= 0:
                break
        return latest

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
        if is_durable:
            for tier in self.lower:
                tier.save_point(sequence, path.match)

    def remember(self, sequence: EngineSequence) -> None:
        """Keeps its tokens, if only to explain a later miss."""
        self.ram.insert(sequence.namespace, sequence.tokens)
        self.ram.forget_oldest(self._seen_tokens)

    def write_behind(
        self, sequence: EngineSequence, is_wanted: Callable[[], bool] | None = None, kept: int = 0
    ) -> None:
        """Copies an idle sequence that stays in the engine: to RAM if nothing recent is evicted for it, and below.

        As soon as the engine `is_wanted` for something else it stops, and goes on the next time. The pages of its first
        `kept` tokens are left to the sequence that keeps them in the engine.
        """
        path = self._saver.path(sequence, kept=kept)
        self._saver.save_if_cheap(path, is_wanted)
        if is_wanted is not None and is_wanted():
            sequence.written_in_part()
            return
        if kept and self.lacking_bytes(sequence, kept):  # RAM has no room for it, so that it stays
            sequence.written_in_part()
        else:
            sequence.written_behind()
        for tier in self.lower:
            tier.save(sequence, path.match, kept)
            tier.forget_oldest(self._seen_tokens)

    def share(self, sequence: EngineSequence) -> None:
        """Copies a sequence that was just finished, if machines share a store: the next turn may come to another."""
        if any(tier.is_shared for tier in self.lower) and not sequence.is_empty:
            self.write_behind(sequence)

    def save(self, sequence: EngineSequence, kept: int = 0) -> None:
        """Saves an idle sequence that is about to leave the engine, as far as the budgets allow.

        No pages are saved of its first `kept` tokens: the engine keeps them for another.
        """
        if sequence.is_empty:
            return
        if not sequence.is_saved:
            self.write_behind(sequence, kept=kept)
        sequence.saved()
        path = self._saver.path(sequence, kept=kept)
        if self._saver.lacking_bytes(path.match, path.length, kept):  # part of it did not fit, or was evicted since
            self._saver.save_all(path)

    def swap(self, leaving: EngineSequence, arriving: Tokens, namespace: str, kept: int = 0) -> None:
        """Saves a sequence that is about to be overwritten, but for its first `kept` tokens.

        If RAM is short, it drops pages of the prefix that arrives instead, and saves no page of what both have in
        common: the engine will hold them.
        """
        if (lacking := self.lacking_bytes(leaving, kept)) > self.ram.budget.free_bytes:
            self.ram.budget.drop_pages(self.ram.match(namespace, arriving), lacking)
            kept = leaving.shared_with(arriving) if leaving.namespace == namespace else 0
        self.save(leaving, kept)

    def lacking_bytes(self, sequence: EngineSequence, kept: int = 0) -> int:
        """About how many bytes of a sequence RAM does not have.

        With 0, nothing is lost if it leaves the engine but for its first `kept` tokens.
        """
        return self._saver.lacking_bytes(self.ram.match(sequence.namespace, sequence.tokens), sequence.length, kept)

    # --- below RAM

    def search(self, wanted: Wanted) -> list[Search]:
        """Starts to look a prompt up in the tiers that machines share, where that can gain anything."""
        return [search for tier in self.lower if (search := tier.search(wanted)) is not None]

    def fetch(self, records: Sequence[Record], spared_s: float) -> Fetches:
        """Starts reading into RAM what spares so much prefill, from all tiers at once."""
        of = [(tier, [each for each in records if each.store is tier.blobs]) for tier in self.lower]
        return Fetches([tier.fetch(some, spared_s) for tier, some in of if some])

    def forget(self, records: Sequence[Record]) -> None:
        """Forgets records that were lost."""
        for tier in self.lower:
            tier.forget(each for each in records if each.store is tier.blobs)

    def catch_up(self) -> None:
        """Copies from RAM what the tiers below had no room for. To be called when nothing runs."""
        for tier in self.lower:
            tier.catch_up(self.ram)

    def hold_back(self, *, is_busy: bool) -> None:
        """While the engine is busy, writing waits as long as it can."""
        for tier in self.lower:
            tier.blobs.hold_back(is_busy=is_busy)

    def clear(self, is_meant: Callable[[str], bool]) -> list[Future[None]]:
        """Forgets all namespaces that are meant. The futures are of the media below RAM."""
        for tier in self:
            tier.clear(is_meant)
        return [tier.blobs.clear(is_meant) for tier in self.lower]

    def close(self, timeout_s: float) -> None:
        """Gives the tiers below `timeout_s` to write what waits."""
        for tier in self.lower:
            tier.blobs.close(timeout_s)
            tier.closed()

    def _drop_pages_in_engine(self, nbytes: int) -> None:
        """Makes room in RAM by dropping pages that sequences in the engine hold too: running and recent ones first."""
        doubled = [sequence for sequence in self._sequences if sequence.has_ram_pages and not sequence.is_empty]
        for sequence in sorted(doubled, key=lambda each: (each.is_busy, each.last_used), reverse=True):
            self.ram.budget.drop_pages(self.ram.match(sequence.namespace, sequence.tokens), nbytes)
            if self.ram.budget.free_bytes >= nbytes:
                return
            sequence.drop_pages()
