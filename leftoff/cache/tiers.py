"""All that is kept: in RAM, and perhaps on a disk behind it. What a turn reads goes into both."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from leftoff.cache.blob_store import Shelf
from leftoff.cache.budget import Clock
from leftoff.cache.costs import Costs
from leftoff.cache.disk_tier import DiskTier
from leftoff.cache.entry import Entry
from leftoff.cache.lookup import Found
from leftoff.cache.policy import Policy, ValuePerByte
from leftoff.cache.save import Keeper
from leftoff.cache.sequences import Live, LiveTable
from leftoff.cache.source import EngineSource
from leftoff.cache.tier import Tier
from leftoff.engine.memory.base import Memory
from leftoff.types import Logits, Tokens

PAGE_TOKENS = 256
SEEN_TOKENS = 16 << 20  # remembered for the report once their data is gone: 64 MiB


@dataclass(frozen=True)
class Disk:
    """A second tier: where it is kept, and how many bytes it may have."""

    shelf: Shelf
    budget_bytes: int
    policy: Policy = field(default_factory=ValuePerByte)


class Tiers:
    """Iterates over the tiers, the fastest first."""

    def __init__(
        self,
        memory: Memory,
        costs: Costs,
        clock: Clock,
        lives: LiveTable,
        ram: Tier,
        disk: Disk | None,
        *,
        page_tokens: int,
        seen_tokens: int,
    ) -> None:
        source = EngineSource(memory, costs)
        self.ram = ram
        self.disk: DiskTier | None = None
        if disk is not None:
            self.disk = DiskTier(disk.shelf, disk.budget_bytes, disk.policy, clock, memory, source, page_tokens)
        self._keeper = Keeper(memory, ram.store, source, page_tokens)
        self._lives = lives
        self._seen_tokens = seen_tokens
        ram.store.shed = self._shed

    def __iter__(self) -> Iterator[Tier]:
        yield self.ram
        if self.disk is not None:
            yield self.disk

    def find(self, tokens: Tokens, namespace: str) -> Found:
        ram = self.ram.match(namespace, tokens)
        return Found(ram, self.disk.match(namespace, tokens)) if self.disk is not None else Found(ram)

    def use(self, entry: Entry) -> None:
        """It was resumed from."""
        for tier in self:
            if tier.store.holds(entry):
                tier.store.hit(entry)

    # --- while a turn goes on

    def keep_point(self, live: Live, logits: Logits | None, *, is_mark: bool, with_pages: bool) -> None:
        """A resume point where the sequence stands, and the pages behind it: so little is left to do at the end."""
        tree, match = self.ram.tree(live.namespace), self.ram.insert(live.namespace, live.tokens)
        entry = self._keeper.keep_point(tree, match, live, live.length, logits, is_mark=is_mark)
        self.leave_behind(live, entry)
        if is_mark and self.disk is not None:
            self.disk.keep_mark(live, match)
        if with_pages:
            self._keeper.keep_behind(tree, match, live)
            live.is_doubled = True

    def leave_behind(self, live: Live, point: Entry | None) -> None:
        """The live sequence goes on from a point, which is not the end of the conversation any more."""
        if live.point is not None:
            self.ram.store.hold(live.point, held=False)
        live.point = point if point is not None and self.ram.store.holds(point) else None
        if live.point is not None:
            self.ram.store.hold(live.point)

    def hold_back(self, *, is_busy: bool) -> None:
        """Whether the engine works: then the disk's threads leave it the cores."""
        if self.disk is not None:
            self.disk.shelf.hold_back(is_busy=is_busy)

    # --- when it rests

    def learn(self, live: Live) -> None:
        """Remembers its tokens, if only to explain."""
        self.ram.insert(live.namespace, live.tokens)
        self.ram.forget_oldest(self._seen_tokens)

    def save_ahead(self, live: Live) -> None:
        """Puts what the tiers lack of a live sequence into them, if nothing of use has to make way in RAM."""
        if live.is_saved:
            return
        live.is_saved = live.is_doubled = True
        match = self.ram.insert(live.namespace, live.tokens)
        self._keeper.keep_ahead(self.ram.tree(live.namespace), match, live)
        if self.disk is not None:
            self.disk.keep(live, match)
            self.disk.forget_oldest(self._seen_tokens)

    def save(self, live: Live) -> None:
        """The same for one that leaves the engine: as far as the budgets allow."""
        if not live.is_empty:
            self.save_ahead(live)
            self.leave_behind(live, None)
            live.is_doubled = False
            match = self.ram.insert(live.namespace, live.tokens)
            if self._keeper.lacking_bytes(match, live):
                self._keeper.keep_all(self.ram.tree(live.namespace), match, live)

    def swap(self, leaving: Live, arriving: Tokens, namespace: str) -> None:
        """Saves what leaves the engine. If room is short, the pages of what arrives make way: they are loaded now."""
        if (lacking := self.lacking_bytes(leaving)) > self.ram.store.free_bytes:
            tree = self.ram.tree(namespace)
            self.ram.store.drop_pages(tree, tree.match(arriving), lacking)
        self.save(leaving)

    def keeps(self, live: Live) -> bool:
        """Nothing is lost if it leaves the engine."""
        return not self.lacking_bytes(live)

    def lacking_bytes(self, live: Live) -> int:
        """What RAM does not have of it."""
        return self._keeper.lacking_bytes(self.ram.match(live.namespace, live.tokens), live)

    def _shed(self, nbytes: int) -> None:
        """Gives up pages in RAM that live sequences hold as well, of those that will stay longest first."""
        doubled = [live for live in self._lives if live.is_doubled and not live.is_empty]
        for live in sorted(doubled, key=lambda live: (live.is_busy, live.last_used), reverse=True):
            store, tree = self.ram.store, self.ram.tree(live.namespace)
            store.drop_pages(tree, tree.match(live.tokens), nbytes)
            if store.free_bytes >= nbytes:
                return
            live.is_doubled = False

    def settle(self) -> None:
        if self.disk is not None:
            self.disk.settle()

    def close(self, timeout_s: float) -> None:
        """Gives the disk so long to write what it was given."""
        if self.disk is not None:
            self.disk.shelf.close(timeout_s)

    # --- for people

    def pin(self, tokens: Tokens, namespace: str) -> int:
        """The bytes that lead to the end of `tokens` and are never evicted now, 0 if it is no resume point."""
        found, nbytes = self.find(tokens, namespace), 0
        for tier in self:
            entry = tier.match(namespace, tokens).entry_at(int(tokens.size))
            if entry is not None:
                tier.store.pin(entry)
                nbytes = nbytes or entry.nbytes + sum(part.page.nbytes for part in found.parts)
        return nbytes

    def clear(self, is_meant: Callable[[str], bool]) -> None:
        for tier in self:
            tier.clear(is_meant)

    def check_integrity(self) -> None:
        """Raises AssertionError if anything contradicts itself. For tests."""
        for tier in self:
            tier.check_integrity()
