"""All that is kept: in RAM, and perhaps on a disk behind it. What a turn reads goes into both."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from leftoff.cache.costs import Costs
from leftoff.cache.disk import DiskTier
from leftoff.cache.entry import Entry
from leftoff.cache.found import Found
from leftoff.cache.keeper import Keeper
from leftoff.cache.live import Live
from leftoff.cache.policy import Policy, ValuePerByte
from leftoff.cache.shelf import Shelf
from leftoff.cache.source import EngineSource
from leftoff.cache.store import Clock
from leftoff.cache.tier import Tier
from leftoff.core import Logits, Tokens
from leftoff.engine.base import Memory

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
        self._seen_tokens = seen_tokens

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
        self._keeper.keep_point(tree, match, live, live.length, logits, is_mark=is_mark)
        if is_mark and self.disk is not None:
            self.disk.keep_mark(live, match)
        if with_pages:
            self._keeper.keep_behind(tree, match, live)

    def hold_back(self, *, is_busy: bool) -> None:
        """Whether the engine works: then the disk's threads leave it the cores."""
        if self.disk is not None:
            self.disk.shelf.hold_back(is_busy=is_busy)

    # --- when it rests

    def learn(self, live: Live) -> None:
        """Remembers its tokens, if only to explain."""
        self.ram.insert(live.namespace, live.tokens)
        self.ram.forget_oldest(self._seen_tokens)

    def save(self, live: Live) -> None:
        """Puts what the tiers lack of a live sequence into them, as far as their budgets allow."""
        if live.is_saved:
            return
        live.is_saved = True
        match = self.ram.insert(live.namespace, live.tokens)
        live.is_kept = self._keeper.keep_all(self.ram.tree(live.namespace), match, live)
        if self.disk is not None:
            self.disk.keep(live, match)
            self.disk.forget_oldest(self._seen_tokens)

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
