"""Keeps the store within its budget, forgets what is old, and repairs the index: one machine at a time, by a lease.

A blob is removed from the index before its object is deleted, so that no machine is sent to a missing object. An index
that was restarted may have lost entries: then all objects are listed, missing entries are added, and entries without an
object are removed. So losing the index loses nothing that was stored. The names of namespaces are put and removed then
as well: each that has blobs, or had some lately, has one.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from leftoff.store.keys import namespace_hash
from leftoff.store.link import PROBLEMS, Link
from leftoff.store.namespaces import drop_name, put_name
from leftoff.store.objects import NAME, ObjectName

logger = logging.getLogger("leftoff.store")

PAUSE_S = 5.0
_LEASE_MS = 30_000
_AT_ONCE = 256
_LIST_EVERY_S = (
    86_400  # after which the objects are listed in any case: a machine may have died between a put and the index
)
_FULL, _ENOUGH = 1.0, 0.95  # of the budget: it is full, and so much is left


async def _nothing() -> None: ...


class Collector:
    """Belongs to the loop of the link."""

    def __init__(self, link: Link, budget_bytes: int, introduce: Callable[[], Awaitable[None]] = _nothing) -> None:
        """`introduce` says in the store what the group is of: that may be lost as well."""
        self._link = link
        self._budget_bytes = budget_bytes
        self._introduce = introduce
        self._key = link.index.keys.lease("collector")

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while True:
            try:
                if not self._link.index_breaker.is_failing and await self._link.index.take_lease(self._key, _LEASE_MS):
                    await self.collect()
            except PROBLEMS as error:
                logger.debug("the store is not collected: %s", error)
            await asyncio.sleep(PAUSE_S * random.uniform(0.5, 1.5))

    async def collect(self) -> None:
        """One round."""
        index = self._link.index
        process = await index.process()
        if (await index.redis.get(index.keys.process)) != process.encode():
            await self.rebuild()
            await index.redis.set(index.keys.process, process, ex=_LIST_EVERY_S)
        await self.drop_unused(index.max_age_s)
        if (await index.usage()).nbytes > _FULL * self._budget_bytes:
            await self.prune(int(_ENOUGH * self._budget_bytes))

    async def drop_unused(self, unused_s: float) -> int:
        """Removes what was not used for so long; returns how many bytes."""
        removed = 0
        while old := await self._link.index.first_to_go(_AT_ONCE, unused_s):
            removed += await self._remove(old)
        return removed

    async def prune(self, nbytes: int) -> int:
        """Removes what is worth least until so many bytes are left; returns how many were removed."""
        index, removed = self._link.index, 0
        while (usage := await index.usage()).nbytes > nbytes and (first := await index.first_to_go(_AT_ONCE)):
            excess = usage.nbytes - nbytes
            count = max(1, min(len(first), int(len(first) * excess / max(1, usage.nbytes)) + 1))
            removed += await self._remove(first[:count])
        return removed

    async def rebuild(self) -> int:
        """Makes the index agree with the objects; returns how many blobs it lacked."""
        link, num_added = self._link, 0
        unseen = await link.index.names()
        named, filled = set[str](), set[str]()
        async for objects in link.objects.listed(link.group):
            await link.index.renew_lease(self._key, _LEASE_MS)
            unseen.difference_update(each.name for each in objects)
            named.update(each.name.removesuffix(f"/{NAME}") for each in objects if each.name.endswith(f"/{NAME}"))
            parsed = [(ObjectName.parse(each.name), each.nbytes) for each in objects]
            blobs = [(name, nbytes) for name, nbytes in parsed if name is not None]
            filled.update(name.namespace for name, _ in blobs)
            num_added += await link.index.add_all(blobs)
        gone = [name for name in map(ObjectName.parse, unseen) if name is not None]
        for start in range(0, len(gone), _AT_ONCE):
            await link.index.remove(gone[start : start + _AT_ONCE])
        await self._introduce()
        await self._mend_names(named, filled)
        if num_added or gone:
            logger.warning("the index had lost %d blobs of the store, and knew %d too many", num_added, len(gone))
        return num_added

    async def _mend_names(self, named: set[str], filled: set[str]) -> None:
        """Names the namespaces that the index knows; those that have no blobs lose their names after a while."""
        link = self._link
        known = {namespace_hash(namespace): namespace for namespace in await link.index.namespaces()}
        for hashed in known.keys() - named:
            await put_name(link, known[hashed])
        for hashed in named - filled:
            await link.index.renew_lease(self._key, _LEASE_MS)
            await drop_name(link, hashed, link.index.max_age_s)

    async def _remove(self, names: list[ObjectName]) -> int:
        """Removes blobs; one that was stored again meanwhile is taken out of the index once more."""
        nbytes = await self._link.remove(names)
        await self._link.index.renew_lease(self._key, _LEASE_MS)
        return nbytes + await self._link.index.remove(names)
