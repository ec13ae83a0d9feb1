"""Leases on reading: while this machine reads a header that is new to all, the others wait for what it stores."""

from dataclasses import dataclass

from leftoff.store.index import Index


@dataclass
class _Lease:
    ttl_ms: float
    num_written: int  # when it was renewed last
    is_stored: bool = False  # a blob that ends at the position is


class ReadingLeases:
    """The leases that this machine holds. Belongs to the loop of the link; may raise the problems of the index."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._leases: dict[bytes, _Lease] = {}
        self._num_written = 0

    def hold(self, key: bytes, ttl_ms: float) -> None:
        """Takes care of a lease that was taken."""
        self._leases[key] = _Lease(ttl_ms, self._num_written)

    def wrote(self, tag: bytes) -> None:
        """A blob was stored whose path ends with this tag."""
        self._num_written += 1
        if (lease := self._leases.get(self._index.keys.reading(tag))) is not None:
            lease.is_stored = True

    async def tend(self, *, is_idle: bool) -> None:
        """Renews those of which more was stored, and releases them once their end and all that waits is."""
        for key, lease in [*self._leases.items()]:
            if lease.is_stored and is_idle:
                del self._leases[key]
                await self._index.release_lease(key)
            elif lease.num_written < self._num_written:
                lease.num_written = self._num_written
                if not await self._index.renew_lease(key, lease.ttl_ms):
                    del self._leases[key]
