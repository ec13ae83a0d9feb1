"""The shared store on paper: what one replica has put can be found by all others from the moment its request ended.

A replica sees it as the blob store of its disk tier, whose trees are filled by looking a prompt up before it is served.
A page is found by the block it begins with, and is of use as far as the prompt goes along: as if it were cut there.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lab.simulate.memory import PaperBytes
from lab.simulate.paper_blob_store import PaperBlobStore
from leftoff.cache.blob_store import LOWEST, Item, Rank, Record
from leftoff.cache.blob_tier import BlobTier
from leftoff.engine.memory.base import Page, Snapshot
from leftoff.types import Tokens

Key = tuple[int, int]  # the start of a page, or -1 for a snapshot, and the block that its path ends with


@dataclass
class Stock:
    """What the store was given."""

    page_tokens: int = 0
    num_snapshots: int = 0
    nbytes: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """An item and the blocks it covers: of a snapshot the last before it."""

    item: Item
    blocks: Tokens


class SharedStore:
    """Items by the first of the blocks that they cover: an id names its whole prefix."""

    def __init__(self, num_ids: int, block_tokens: int) -> None:
        self.stock = Stock()
        self._block_tokens = block_tokens
        self._firsts = np.zeros(num_ids, bool)
        self._items: dict[int, list[Stored]] = {}
        self._known: set[Key] = set()

    def claim(self, key: Key, item: Item) -> bool:
        """Puts are idempotent: the first writes. False if the item is there, or on its way."""
        if key in self._known:
            return False
        self._known.add(key)
        self.stock.nbytes += item.nbytes
        if isinstance(item, Page):
            self.stock.page_tokens += (item.end - item.start) * self._block_tokens
        else:
            self.stock.num_snapshots += 1
        return True

    def publish(self, stored: list[Stored]) -> None:
        for each in stored:
            first = int(each.blocks[0])
            self._firsts[first] = True
            self._items.setdefault(first, []).append(each)

    def on_path(self, blocks: Tokens) -> Iterator[tuple[Key, Item]]:
        """What the store has of a prompt, pages as far as they go along with it."""
        for position in np.flatnonzero(self._firsts[blocks]).tolist():
            for stored in self._items[int(blocks[position])]:
                item = stored.item
                if isinstance(item, Page):
                    covered = blocks[item.start : item.end]
                    length = int(np.count_nonzero(stored.blocks[: covered.size] == covered))
                    item = Page(item.start, item.start + length, PaperBytes(item.nbytes * length // stored.blocks.size))
                yield _key(item, blocks), item

    def deepest(self, blocks: Tokens) -> int:
        """The position of the deepest snapshot on a path; 0 without one."""
        for position in np.flatnonzero(self._firsts[blocks])[::-1].tolist():
            if any(isinstance(stored.item, Snapshot) for stored in self._items[int(blocks[position])]):
                return int(position) + 1
        return 0


class StoreView(PaperBlobStore):
    """One replica's door to the store. What it puts is seen by others after `publish`."""

    def __init__(self, store: SharedStore) -> None:
        super().__init__()
        self._store = store
        self._waiting: list[Stored] = []
        self._seen: set[Key] = set()

    def put(self, item: Item, namespace: str, tokens: Tokens, rank: Rank = LOWEST) -> Record:
        key = _key(item, tokens)
        self._seen.add(key)
        if self._store.claim(key, item):
            start, end = (item.start, item.end) if isinstance(item, Page) else (item.position - 1, item.position)
            self._waiting.append(Stored(item, tokens[start:end].copy()))
        return super().put(item, namespace, tokens, rank)

    def publish(self) -> None:
        self._store.publish(self._waiting)
        self._waiting = []

    def look_up(self, blocks: Tokens, tier: BlobTier) -> None:
        """Adds to the tier's trees what the store has of a prompt."""
        new = [(key, item) for key, item in self._store.on_path(blocks) if key not in self._seen]
        if not new:
            return
        tier.insert("", blocks)
        match = tier.match("", blocks)
        for key, item in new:
            self._seen.add(key)
            record = super().put(item, "", blocks)
            if isinstance(item, Page):
                tier.budget.add_page(match, Page(item.start, item.end, record))
            else:
                tier.budget.add_point(match, item.position, Snapshot(item.position, record), is_durable=True)


def _key(item: Item, tokens: Tokens) -> Key:
    if isinstance(item, Page):
        return item.start, int(tokens[item.end - 1])
    return -1, int(tokens[item.position - 1])
