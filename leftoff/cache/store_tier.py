"""The tier that machines share: a view of a store that other machines write to as well.

Its trees hold what this machine has stored, and what it found there for the prompts that it was asked for: no machine
knows all of a fleet. So its budget bounds the view and not the store, and what leaves the view stays stored; the store
itself is kept within its own budget by whichever machine holds the lease for that.

A view may be stale. What is gone from the store is found to be lost when it is fetched, and is forgotten.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from leftoff.cache.blob_store import Record, Search, SharedBlobStore, Wanted
from leftoff.cache.budget import Clock
from leftoff.cache.costs import Costs
from leftoff.cache.disk_tier import DiskSettings, DiskTier
from leftoff.cache.fetch import Watch
from leftoff.cache.plan import Plan
from leftoff.cache.policy import Policy, ValuePerByte
from leftoff.cache.save import SavePath
from leftoff.cache.window_pages import WindowPages
from leftoff.engine.memory.base import Bytes, Memory
from leftoff.types import Tokens

STORE = "store"
_HEADER_MARGIN = 4  # how many times longer reading a header must take than fetching its snapshot
_PATIENCE_S = 5.0  # with a store that delivers nothing at all


@dataclass(frozen=True)
class StoreSettings:
    """The store that this machine shares with others, and how many bytes of it the view may hold."""

    blobs: SharedBlobStore
    view_bytes: int
    policy: Policy = field(default_factory=ValuePerByte)


class StoreTier(DiskTier):
    """Pages and snapshots in a store that other machines share."""

    def __init__(self, settings: StoreSettings, clock: Clock, memory: Memory, costs: Costs, page_tokens: int) -> None:
        self._shared = settings.blobs
        self._is_removing = False
        below = DiskSettings(settings.blobs, settings.view_bytes, settings.policy, STORE)
        super().__init__(below, clock, memory, costs, page_tokens)
        self.watch = Watch(_PATIENCE_S)
        self.budget.wear = None  # what leaves the view stays stored
        self._snapshot_bytes = memory.snapshot_bytes

    @property
    def num_waiting(self) -> int:
        """How many pages and snapshots are not in the store yet: until then no other machine finds them."""
        return self._shared.num_waiting

    def search(self, tokens: Tokens, plan: Plan, header_end: int) -> Search | None:
        """Starts to look a prompt up. None if reading what the plan leaves takes no longer than one fetch.

        A header that is worth storing is read by one machine: the others wait for it.
        """
        self._expect_rate()
        if not self._has_snapshots:
            header_end -= header_end % self._page_tokens  # a page that reaches past it is of one prompt alone
        num_left = int(tokens.size) - plan.resume
        read_ms = self._costs.prefill_ms(num_left)
        if num_left <= 1 or read_ms <= self._costs.fetch_ms(STORE, 1):
            return None
        header_ms = self._costs.prefill_ms(max(0, header_end - plan.resume))
        is_worth_it = header_ms > _HEADER_MARGIN * self._costs.fetch_ms(STORE, self._snapshot_bytes(header_end))
        known = Wanted(plan.lookup.namespace, tokens, plan.resume, read_ms, header_end if is_worth_it else None)
        return self._shared.search(known)

    def add_found(self, search: Search) -> None:
        """Puts what a search has found into the trees."""
        found = search.found
        if found is None or not found.items or not self.budget.make_room(sum(item.nbytes for item in found.items)):
            return
        match = self.insert(found.namespace, found.tokens)
        windows = WindowPages(self._window_tokens)
        windows.add(match, found.items)
        self._insert_items(match, found, windows)
        self.budget.drop_useless_pages(match.path[-1])

    def drop(self, namespace: str, tokens: Tokens, start: int) -> None:
        """Somebody asked for it, it is not for lack of room: so it is removed from the store, too."""
        self._is_removing = True
        super().drop(namespace, tokens, start)
        self._is_removing = False

    def clear(self, is_meant: Callable[[str], bool]) -> None:
        """The store forgets them too, whatever machine has stored them."""
        super().clear(is_meant)
        self._shared.clear(is_meant)

    def _save_pages(self, path: SavePath, end: int) -> None:
        """Saves every page up to the point, and none that ends after it: no other prompt would lead there."""
        self._saver.save_until(path, end)

    def _expect_rate(self) -> None:
        if (call_ms := self._shared.call_ms) is not None:
            self._costs.store_call_ms = call_ms
        if (rate := self._shared.bytes_per_ms) is not None:  # of one blob alone: several at once are no slower
            self._costs.store_bytes_per_ms = max(rate, self._costs.store_bytes_per_ms)

    def _remove_blob(self, data: Bytes) -> None:
        assert isinstance(data, Record)
        if self._is_removing:
            self._shared.remove(data)
        else:
            self._shared.release(data)
