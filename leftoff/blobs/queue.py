"""The entries that wait to be written, the most valuable first. A queue that is full gives up the least valuable.

Entries of one rank were put together: the pages that lead to a resume point, and its snapshot. One without the others
is of no use, so they are written, and given up, one group after the other.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from leftoff.blobs.entries import Entry
from leftoff.cache.blob_store import Rank


@dataclass
class _Group:
    """The entries of one rank, by name, oldest first."""

    entries: dict[str, Entry] = field(default_factory=dict)
    nbytes: int = 0


class WriteQueue:
    """Entries in groups, by rank. Not thread-safe."""

    def __init__(self) -> None:
        self._groups: dict[Rank, _Group] = {}
        self._ranks: dict[str, Rank] = {}
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._ranks)

    def __iter__(self) -> Iterator[Entry]:
        for rank in sorted(self._groups, reverse=True):
            yield from self._groups[rank].entries.values()

    def __contains__(self, entry: Entry) -> bool:
        rank = self._ranks.get(entry.name)
        return rank is not None and self._groups[rank].entries[entry.name] is entry

    def put(self, entry: Entry, rank: Rank) -> None:
        """Takes the place of one of the same name, which the table has dropped since."""
        if (before := self._ranks.get(entry.name)) is not None:
            self.remove(self._groups[before].entries[entry.name])
        group = self._groups.setdefault(rank, _Group())
        group.entries[entry.name] = entry
        group.nbytes += entry.nbytes
        self._ranks[entry.name] = rank
        self.nbytes += entry.nbytes

    def remove(self, entry: Entry) -> None:
        rank = self._ranks.pop(entry.name)
        group = self._groups[rank]
        del group.entries[entry.name]
        group.nbytes -= entry.nbytes
        self.nbytes -= entry.nbytes
        if not group.entries:
            del self._groups[rank]

    def promote(self, entry: Entry, rank: Rank) -> None:
        """Raises the rank of a waiting entry; one that has a higher rank keeps it."""
        if entry in self and self._ranks[entry.name] < rank:
            self.remove(entry)
            self.put(entry, rank)

    def pop(self) -> Entry:
        """Takes the entry that is to be written next."""
        entry = next(iter(self._groups[max(self._groups)].entries.values()))
        self.remove(entry)
        return entry

    def bytes_below(self, rank: Rank) -> int:
        """The bytes that would be given up for an entry of this rank."""
        return sum(group.nbytes for other, group in self._groups.items() if other < rank)

    def give_up(self, nbytes: int, rank: Rank) -> list[Entry]:
        """Takes out groups of lower ranks, the lowest first, until they have had `nbytes`."""
        given_up: list[Entry] = []
        while nbytes > 0 and self._groups and (lowest := min(self._groups)) < rank:
            for entry in list(self._groups[lowest].entries.values()):
                self.remove(entry)
                given_up.append(entry)
                nbytes -= entry.nbytes
        return given_up

    def clear(self) -> None:
        self._groups.clear()
        self._ranks.clear()
        self.nbytes = 0
