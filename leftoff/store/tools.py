"""Lists, verifies, prunes and clears a shared store, for `leftoff cache --store`. Servers may run meanwhile."""

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from leftoff.disk.tools.verify import Fault, Findings
from leftoff.engine.errors import BlobError
from leftoff.engine.memory.arena import Arena
from leftoff.engine.seal import kind_of, span_of, unseal
from leftoff.store.collector import Collector
from leftoff.store.fleet_key import FleetKey
from leftoff.store.index import DAY_S, IndexUsage
from leftoff.store.link import Link
from leftoff.store.objects import Listed, MissingError, ObjectName, Objects, Reader

ABOUT = "about"  # the object that says what a group is of
NO_GROUP = "0" * 64  # a fingerprint, for a link that only lists groups
_AT_ONCE = 256


@dataclass(frozen=True)
class Group:
    """What the servers of one fingerprint have stored."""

    name: str  # the beginning of the fingerprint
    fingerprint: str
    described: str
    num_objects: int
    nbytes: int
    newest_s: float  # the age of the object that was stored last
    known: IndexUsage  # to the index


class About(NamedTuple):
    """What a group is of. If nobody has written that, the fingerprint is only its beginning."""

    fingerprint: str
    described: str
    key_id: str = ""  # of the fleet's key; empty without one

    @property
    def content(self) -> bytes:
        return "".join(f"{line}\n" for line in self if line).encode()


async def about(objects: Objects, group: str) -> About:
    """What is written about a group."""
    with suppress(MissingError):
        lines = bytes((await objects.get(f"{group}/{ABOUT}")).data).decode("utf-8", "replace").splitlines()
        if len(lines) in (2, 3) and lines[0].startswith(group):
            return About(*lines)
    return About(group, "unknown")


async def groups_about(objects: Objects, is_meant: Callable[[About], bool]) -> list[str]:
    """The groups that are of what is meant."""
    return [group for group in await objects.groups() if is_meant(await about(objects, group))]


async def group_of(link: Link) -> Group:
    """The group of a link: all its objects are listed."""
    fingerprint, described, _ = await about(link.objects, link.group)
    num_objects = nbytes = 0
    newest_s = float("inf")
    async for listed in blobs_of(link.objects, link.group):
        num_objects, nbytes, newest_s = num_objects + 1, nbytes + listed.nbytes, min(newest_s, listed.age_s)
    return Group(link.group, fingerprint, described, num_objects, nbytes, newest_s, await link.index.usage())


async def blobs_of(objects: Objects, group: str) -> AsyncIterator[Listed]:
    """All objects of a group that are blobs by their names."""
    async for chunk in objects.listed(group):
        for listed in chunk:
            if ObjectName.parse(listed.name) is not None:
                yield listed


async def verify_group(link: Link, fingerprint: str, key: FleetKey | None = None, *, fix: bool) -> Findings:
    """Reads every object of a link's group. With `fix`, what is damaged is removed."""
    faults: list[Fault] = []
    unseen = await link.index.names()
    num_blobs, nbytes, arena = 0, 0, Arena()
    async for listed in blobs_of(link.objects, link.group):
        num_blobs, nbytes = num_blobs + 1, nbytes + listed.nbytes
        unseen.discard(listed.name)
        reason = await _fault(link, listed.name, fingerprint, arena, key)
        if reason:
            faults.append(Fault(listed.name, reason))
    unseen &= await link.index.names()  # else it was removed meanwhile
    faults += [Fault(name, "the index knows it, and the store has no such object") for name in sorted(unseen)]
    if fix:
        names = [name for fault in faults if (name := ObjectName.parse(fault.name)) is not None]
        await link.remove(names)
        await Collector(link, 0).rebuild()
    return Findings(num_blobs, nbytes, faults)


async def _fault(link: Link, text: str, fingerprint: str, arena: Arena, key: FleetKey | None) -> str:
    """Why an object cannot be used; empty if it can."""
    name = ObjectName.parse(text)
    assert name is not None
    try:
        got = await link.objects.get(f"{link.group}/{text}")
        mac_key = key.key("blobs") if key is not None else None
        item = unseal(Reader(got.data), got.data.nbytes, fingerprint, arena, key=mac_key)
    except MissingError:
        return ""  # it was removed meanwhile
    except BlobError as error:
        return str(error)
    is_other = (kind_of(item), *span_of(item)) != (name.kind, name.start, name.end)
    return "a blob of other positions than its name says" if is_other else ""


async def prune(link: Link, to_bytes: int | None, older_days: float | None) -> int:
    """Removes what is worth least till so many bytes are left, and what was not used for so long; returns its size."""
    collector, removed = Collector(link, 0), 0
    if older_days is not None:
        removed += await collector.drop_unused(older_days * DAY_S)
    if to_bytes is not None:
        removed += await collector.prune(to_bytes)
    return removed


async def clear(link: Link) -> int:
    """Removes all objects of a group, and all that the index knows of it; returns how many objects."""
    num_objects = 0
    async for key in link.index.redis.scan_iter(match=link.index.keys.pattern, count=_AT_ONCE):
        await link.index.redis.delete(key)
    async for chunk in link.objects.listed(link.group):
        await link.objects.delete([f"{link.group}/{listed.name}" for listed in chunk])
        num_objects += len(chunk)
    return num_objects
