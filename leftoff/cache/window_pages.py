"""Window pages that were found in a blob store, and the snapshots that they complete.

A store holds window pages and snapshots apart: a snapshot needs the pages that cover the window before its position.
They may lie on the path of another prompt, as far as both have it in common.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from leftoff.cache.blob_store import Item
from leftoff.cache.node import Match, Node
from leftoff.engine.memory.base import Bytes, Snapshot, WindowPage


class WindowPages:
    """Finds pages by the node in which they end."""

    def __init__(self, window_tokens: int) -> None:
        self._window_tokens = window_tokens
        self._pages: dict[int, list[WindowPage]] = defaultdict(list)  # by the identity of the node

    def add(self, match: Match, items: Iterable[Item]) -> None:
        """Adds the window pages among the items of a path, whose nodes must not be split any more."""
        for item in items:
            if isinstance(item, WindowPage) and (node := match.node_at(item.end)) is not None:
                self._pages[id(node)].append(item)

    def data(self) -> Iterator[Bytes]:
        return (page.data for pages in self._pages.values() for page in pages)

    def completed(self, match: Match, snapshot: Snapshot) -> Snapshot | None:
        """The snapshot with its window; None if part of that is missing."""
        start, window = snapshot.position, list[WindowPage]()
        first = max(0, start - self._window_tokens)
        while start > first:
            page = self._ending_at(match.node_at(start), start)
            if page is None:
                return None
            window.insert(0, page)
            start = page.start
        return Snapshot(snapshot.position, snapshot.data, tuple(window))

    def _ending_at(self, node: Node | None, end: int) -> WindowPage | None:
        """The longest, where there are several."""
        pages = [page for page in self._pages[id(node)] if page.end == end] if node is not None else []
        return min(pages, key=lambda page: page.start, default=None)
