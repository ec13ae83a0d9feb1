"""Blobs as objects in any store that obstore knows: S3, GCS, Azure, a shared folder.

The name of an object tells all that the index knows of its blob, so that the objects alone can rebuild the index:

    <fingerprint>/<namespace>/<2 digits>/<tag at the start of the run>.<end>.<kind>.<start>.<tag at the end>
    <fingerprint>/<namespace>/name     the namespace, which is a hash in all other names: to delete what is a tenant's
"""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError
from obstore.store import from_url

from leftoff.blobs.blob import Blob
from leftoff.blobs.path_hash import short
from leftoff.cache.costs import TierCosts
from leftoff.setting import SettingError
from leftoff.store.keys import namespace_hash

logger = logging.getLogger("leftoff.store")

OBJECT_PROBLEMS = (BaseError, OSError, TimeoutError)
_CONNECT_S, _CALL_S = 2, 30  # a large blob takes its time
NAME = "name"
_FOLDER = "file://"
_LISTED_AT_ONCE = 1000
_DELETED_AT_ONCE = 16
STORE_COSTS = TierCosts(1e5, 20.0, calls_at_once=16)  # of fetching, before anything is measured


class MissingError(Exception):
    """The store works, but has no such object."""


@dataclass(frozen=True, slots=True)
class ObjectName:
    """The place of a blob in the store, and its keys in the index. Tags are short."""

    namespace: str  # its hash
    run: bytes
    end: int
    kind: int
    start: int
    tag: bytes

    @classmethod
    def of(cls, blob: Blob) -> "ObjectName":
        return cls(namespace_hash(blob.namespace), short(blob.run), blob.end, blob.kind, blob.start, short(blob.tag))

    @classmethod
    def parse(cls, text: str) -> "ObjectName | None":
        """Reads the text after the fingerprint; None for an object that is no blob, or not named as one would be."""
        with suppress(ValueError):
            namespace, _, name = text.split("/")
            run, end, kind, start, tag = name.split(".")
            found = cls(namespace, bytes.fromhex(run), int(end), int(kind), int(start), bytes.fromhex(tag))
            return found if str(found) == text else None
        return None

    def __str__(self) -> str:
        tag = self.tag.hex()
        return f"{self.namespace}/{tag[:2]}/{self.run.hex()}.{self.end}.{self.kind}.{self.start}.{tag}"


@dataclass(frozen=True)
class Got:
    """The content of an object, and how long the store took to begin with it."""

    data: memoryview
    call_ms: float


@dataclass(frozen=True)
class Listed:
    """An object in a listing."""

    name: str  # after the prefix that was listed
    nbytes: int
    age_s: float

    @classmethod
    def of(cls, meta: Any, skipped: int) -> "Listed":  # noqa: ANN401
        return cls(str(meta["path"])[skipped:], meta["size"], max(0.0, time.time() - meta["last_modified"].timestamp()))


class Reader:
    """Bytes that read like a file, without a copy."""

    def __init__(self, data: memoryview) -> None:
        self._left = data

    def readinto(self, buffer: memoryview, /) -> int:
        count = min(buffer.nbytes, self._left.nbytes)
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


class Objects:
    """The objects of one store. Every call belongs to the event loop of the link."""

    def __init__(self, store: Any) -> None:  # noqa: ANN401
        """`store` is what `open_objects` returns."""
        self._store = store

    async def get(self, name: str) -> Got:
        """`MissingError` if it is not there, one of `OBJECT_PROBLEMS` if the store fails."""
        began = asyncio.get_running_loop().time()
        try:
            result = await self._store.get_async(name)
        except FileNotFoundError as error:
            raise MissingError(name) from error
        call_ms = 1000 * (asyncio.get_running_loop().time() - began)
        return Got(memoryview(await result.bytes_async()), call_ms)

    async def size(self, name: str) -> int:
        """`MissingError` if it is not there."""
        try:
            return int((await self._store.head_async(name))["size"])
        except FileNotFoundError as error:
            raise MissingError(name) from error

    async def put(self, name: str, data: bytes | bytearray) -> None:
        """Atomic. If two machines put one name at once, either may win: both objects hold the same state."""
        await self._store.put_async(name, data, use_multipart=len(data) > 64 << 20)

    async def put_if_absent(self, name: str, data: bytes) -> None:
        """If several machines put at once, the first wins; the last, where the store has no conditional put."""
        try:
            await self._store.put_async(name, data, mode="create", use_multipart=False)
        except (AlreadyExistsError, FileExistsError):
            return
        except (NotSupportedError, NotImplementedError):
            await self.put(name, data)

    async def delete(self, names: Sequence[str]) -> None:
        """Deletes those that are there."""
        for start in range(0, len(names), _DELETED_AT_ONCE):
            await asyncio.gather(*map(self._delete, names[start : start + _DELETED_AT_ONCE]))

    async def _delete(self, name: str) -> None:
        with suppress(FileNotFoundError):
            await self._store.delete_async(name)

    async def listed(self, prefix: str) -> AsyncIterator[list[Listed]]:
        """All objects under a prefix, some at a time."""
        async for chunk in self._store.list(prefix=prefix, chunk_size=_LISTED_AT_ONCE):
            yield [Listed.of(meta, len(prefix) + 1) for meta in chunk]

    async def groups(self, prefix: str = "") -> list[str]:
        """The beginnings of names before the first slash: the fingerprints, or the namespaces of one."""
        listing = await self._store.list_with_delimiter_async(prefix=prefix or None)
        return sorted(str(found).strip("/").rpartition("/")[2] for found in listing["common_prefixes"])


def _make_private(folder: Path) -> None:
    """A folder for the user alone; one that its group may write to was meant for the group, and for nobody else.

    obstore has no mode for what it makes: that is what the umask leaves, for the whole process.
    """
    folder.mkdir(0o700, parents=True, exist_ok=True)
    mode = folder.stat().st_mode & 0o777
    private = mode & (0o770 if mode & 0o020 else 0o700)
    os.umask(0o007 if mode & 0o020 else 0o077)
    if mode != private:
        try:
            folder.chmod(private)
        except OSError:
            logger.warning("others can read the store in %s (mode %o), which belongs to another user", folder, mode)


def open_objects(url: str) -> Any:  # noqa: ANN401
    """A store of obstore, which has a class for each kind."""
    try:
        if url.startswith(_FOLDER):
            _make_private(Path(unquote(url.removeprefix(_FOLDER))))
            return from_url(url)
        client: Any = {"connect_timeout": f"{_CONNECT_S}s", "timeout": f"{_CALL_S}s", "allow_http": True}
        retry: Any = {"max_retries": 1}
        return from_url(url, client_options=client, retry_config=retry)
    except (BaseError, ValueError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise SettingError(
            f"--store {url}: {reason}: give a URL such as s3://bucket/folder, gs://…, az://… or file:///mnt/shared"
        ) from error
