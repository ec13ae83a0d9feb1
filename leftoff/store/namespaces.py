"""The namespaces that something is stored of in a group of the store: finding them, and deleting all that they have."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from leftoff.store.keys import namespace_hash
from leftoff.store.link import Link
from leftoff.store.objects import NAME, MissingError, ObjectName

_MAX_PASSES = 10  # over one namespace that others go on to store


@dataclass
class Cleared:
    """What was deleted. The bytes are those that the index knew of."""

    num_blobs: int = 0
    nbytes: int = 0


async def put_name(link: Link, namespace: str) -> None:
    """Stores a namespace by name, beside its blobs: so it can be deleted, whatever becomes of the index."""
    await link.objects.put_if_absent(_name_of(link, namespace_hash(namespace)), namespace.encode())


async def drop_name(link: Link, hashed: str, unused_s: float) -> None:
    """Removes the name of a namespace without blobs, unless something of it was stored later than so long ago."""
    with suppress(MissingError):
        namespace = await _read_name(link, hashed)
        await link.objects.delete([_name_of(link, hashed)])
        if not await link.index.forget_namespace(namespace, unused_s):
            await put_name(link, namespace)


async def clear_namespaces(link: Link, is_meant: Callable[[str], bool]) -> Cleared:
    """Deletes all blobs of the namespaces that are meant, whoever has stored them, also while they are deleted.

    The name of a namespace goes last: where deleting breaks off, it is found when it is tried again. Whoever stores
    more of it from then on finds that the index does not know it, and stores its name again.
    """
    link.index_breaker.check()
    cleared = Cleared()
    for namespace in filter(is_meant, await _namespaces(link)):
        for _ in range(_MAX_PASSES):
            if not await _remove_blobs(link, namespace, cleared):
                break
        await link.objects.delete([_name_of(link, namespace_hash(namespace))])
        await link.index.redis.zrem(link.index.keys.namespaces, namespace)
        await _remove_blobs(link, namespace, cleared)  # those that were stored before it was out of the index
    return cleared


async def _remove_blobs(link: Link, namespace: str, cleared: Cleared) -> int:
    """Removes what the index knows of a namespace, then what is in the store; returns how many blobs it found."""
    hashed, before = namespace_hash(namespace), cleared.num_blobs
    await _remove(link, cleared, map(ObjectName.parse, await link.index.names(f"{hashed}/*")))
    async for objects in link.objects.listed(f"{link.group}/{hashed}"):
        await _remove(link, cleared, (ObjectName.parse(f"{hashed}/{each.name}") for each in objects))
    return cleared.num_blobs - before


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
                name = await _read_name(link, hashed)
                known |= {name} if namespace_hash(name) == hashed else set()
    return known


async def _read_name(link: Link, hashed: str) -> str:
    return bytes((await link.objects.get(_name_of(link, hashed))).data).decode("utf-8", "replace")


def _name_of(link: Link, hashed: str) -> str:
    return f"{link.group}/{hashed}/{NAME}"
