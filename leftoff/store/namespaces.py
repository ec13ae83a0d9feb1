"""The namespaces that something is stored of in a group of the store: finding them, and deleting all that they have."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from leftoff.store.keys import namespace_hash
from leftoff.store.link import Link
from leftoff.store.objects import NAME, MissingError, ObjectName


@dataclass
class Cleared:
    """What was deleted. The bytes are those that the index knew of."""

    namespaces: list[str] = field(default_factory=list)
    num_blobs: int = 0
    nbytes: int = 0


async def clear_namespaces(link: Link, is_meant: Callable[[str], bool]) -> Cleared:
    """Deletes all blobs of the namespaces that are meant, whoever has stored them.

    The name of a namespace goes last: where deleting breaks off, it is found when it is tried again.
    """
    link.index_breaker.check()
    cleared = Cleared()
    for namespace in filter(is_meant, await _namespaces(link)):
        hashed = namespace_hash(namespace)
        known = map(ObjectName.parse, await link.index.names(f"{hashed}/*"))
        await _remove(link, cleared, known)
        async for objects in link.objects.listed(f"{link.group}/{hashed}"):
            await _remove(link, cleared, (ObjectName.parse(f"{hashed}/{each.name}") for each in objects))
        await link.objects.delete([f"{link.group}/{hashed}/{NAME}"])
        await link.index.redis.zrem(link.index.keys.namespaces, namespace)
        cleared.namespaces.append(namespace)
    return cleared


async def _remove(link: Link, cleared: Cleared, found: Iterable[ObjectName | None]) -> None:
    names = [name for name in found if name is not None]
    cleared.nbytes += await link.remove(names)
    cleared.num_blobs += len(names)


async def _namespaces(link: Link) -> set[str]:
    """All that something is stored of: an index that was rebuilt knows blobs, and not whose they are."""
    known = {"", *await link.index.namespaces()}
    hashes = {*map(namespace_hash, known)}
    for hashed in await link.objects.groups(link.group):
        if hashed not in hashes:
            with suppress(MissingError):
                content = bytes((await link.objects.get(f"{link.group}/{hashed}/{NAME}")).data)
                name = content.decode("utf-8", "replace")
                known |= {name} if namespace_hash(name) == hashed else set()
    return known
