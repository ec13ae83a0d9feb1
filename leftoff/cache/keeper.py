"""Copies state from the engine into the tree: snapshots while a prompt is read, pages behind it.

The tree is the only record of what is saved: a page is made for what no stretch covers, so that a header shared by
any number of conversations is stored once.
"""

import time
from collections.abc import Iterator

from leftoff.cache.costs import Costs
from leftoff.cache.entry import Entry
from leftoff.cache.live import Live
from leftoff.cache.store import Store
from leftoff.cache.trie import Match, Trie
from leftoff.core import Logits
from leftoff.engine.base import Memory, Page, Snapshot


class Keeper:
    """Moves bytes; decides nothing but how they are cut into pages."""

    def __init__(self, memory: Memory, store: Store, costs: Costs, page_tokens: int) -> None:
        self._memory = memory
        self._store = store
        self._costs = costs
        self._page_tokens = page_tokens

    def keep_snapshot(self, tree: Trie, match: Match, live: Live, logits: Logits | None = None) -> Entry | None:
        """A resume point where the live sequence stands. None if the budget has no room for it."""
        known = _entry_at(match, live.length)
        if known is not None and (logits is None or known.logits is not None):
            return known
        logits_bytes = logits.nbytes if logits is not None else 0
        wants_snapshot = self._memory.kind.has_snapshots and (known is None or known.snapshot is None)
        estimate = self._memory.snapshot_bytes(live.length) if wants_snapshot else 0
        if not self._store.make_room(estimate + logits_bytes):
            return None
        snapshot = self._save_snapshot(live) if wants_snapshot else None
        if snapshot is not None and not self._store.make_room(snapshot.nbytes + logits_bytes):
            return None
        return self._store.add_entry(tree, match, live.length, snapshot, logits)

    def keep_all(self, tree: Trie, match: Match, live: Live) -> bool:
        """Everything up to the end of the live sequence, or as much of it as the budget allows. True if it was all."""
        for end in self._ends(match, live):
            if self._keep_until(tree, match, live, end):
                return end == live.length
        return False

    def _ends(self, match: Match, live: Live) -> Iterator[int]:
        """How far to keep, best first: all of it, else up to an earlier resume point."""
        if self._memory.is_whole(live.seq):
            yield live.length
        if self._memory.kind.has_snapshots:
            yield from (entry.position for entry in reversed(list(match.entries())))
        else:
            yield from (live.length * quarter // 4 for quarter in (3, 2, 1))

    def _keep_until(self, tree: Trie, match: Match, live: Live, end: int) -> bool:
        if self._missing_bytes(match, end) + self._path_bytes(match, end) > self._store.budget_bytes:
            return False
        entry = _entry_at(match, end)
        if entry is None and end == live.length and self._memory.kind.has_snapshots:
            entry = self.keep_snapshot(tree, match, live)
            if entry is None:
                return False
        # what goes to make room may have covered part of this path: then more is missing than before
        while (nbytes := self._missing_bytes(match, end)) > self._store.free_bytes:
            if not self._store.make_room(nbytes, [entry] if entry else []):
                return False
        for start, stop in list(self._missing_pages(match, end)):
            self._add_page(tree, match, self._save_page(live, start, stop))
        return True

    def _missing_bytes(self, match: Match, end: int) -> int:
        return sum(self._memory.page_bytes(stop - start) for start, stop in self._missing_pages(match, end))

    def _path_bytes(self, match: Match, end: int) -> int:
        """What must stay for `end` to be a resume point."""
        covered = {stretch.stored for stretch in match.stretches() if stretch.start < end}
        return sum(stored.nbytes for stored in covered) + self._memory.snapshot_bytes(end)

    def _missing_pages(self, match: Match, end: int) -> Iterator[tuple[int, int]]:
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

    def _add_page(self, tree: Trie, match: Match, page: Page) -> None:
        self._store.add_page(tree, match, page)
        if not self._memory.kind.has_snapshots:
            self._store.add_entry(tree, match, page.end, None)

    def _save_page(self, live: Live, start: int, end: int) -> Page:
        began = time.perf_counter()
        page = self._memory.save_page(live.seq, start, end)
        self._costs.saw_save(page.nbytes, 1000 * (time.perf_counter() - began))
        return page

    def _save_snapshot(self, live: Live) -> Snapshot:
        began = time.perf_counter()
        snapshot = self._memory.save_snapshot(live.seq)
        self._costs.saw_save(snapshot.nbytes, 1000 * (time.perf_counter() - began))
        return snapshot


def _entry_at(match: Match, position: int) -> Entry | None:
    return next((entry for entry in match.entries() if entry.position == position), None)
