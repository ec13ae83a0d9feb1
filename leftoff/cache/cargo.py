"""What a way loads: pages and a snapshot, in RAM or still on disk."""

from collections.abc import Sequence
from dataclasses import dataclass

from leftoff.cache.blob_store import Item, Record
from leftoff.cache.fetch import Fetch
from leftoff.cache.resume_point import is_on_disk
from leftoff.engine.memory.base import Page, PagePart, Snapshot


@dataclass(frozen=True)
class Cargo:
    pages: Sequence[PagePart] = ()
    snapshot: Snapshot | None = None
    fetched: Sequence[Record] = ()  # those of which part of it came from disk

    @property
    def nbytes(self) -> int:
        return sum(part.page.nbytes for part in self.pages) + (self.snapshot.nbytes if self.snapshot else 0)

    @property
    def on_disk(self) -> list[Item]:
        """What must be fetched before it can be loaded, in the order in which it is needed."""
        items: list[Item | None] = [*(part.page for part in self.pages), self.snapshot]
        return list({item: None for item in items if item is not None and is_on_disk(item)})

    @property
    def records(self) -> list[Record]:
        return [item.data for item in self.on_disk if isinstance(item.data, Record)]

    def brought(self, fetch: Fetch) -> "Cargo | None":
        """The same with everything in RAM. None if part of it is lost."""
        items = {record: fetch.item(record) for record in self.records}
        if any(item is None for item in items.values()):
            return None

        def in_ram(item: Item) -> Item:
            found = items.get(item.data) if isinstance(item.data, Record) else item
            assert found is not None
            return found

        pages = []
        for part in self.pages:
            page = in_ram(part.page)
            assert isinstance(page, Page)
            pages.append(PagePart(page, part.start, part.end))
        snapshot = in_ram(self.snapshot) if self.snapshot is not None else None
        assert snapshot is None or isinstance(snapshot, Snapshot)
        return Cargo(pages, snapshot, fetched=self.records)
