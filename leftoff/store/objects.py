"""Blobs as objects in any store that obstore knows: S3, GCS, Azure, a shared folder.

The name of an object tells all that the index knows of its blob, so that the objects alone can rebuild the index:

    <fingerprint>/<namespace>/<2 digits>/<tag at the start of the run>.<end>.<kind>.<start>.<tag at the end>
"""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError
from obstore.store import from_url

from leftoff.blobs.blob import Blob
from leftoff.blobs.path_hash import short
from leftoff.cache.costs import TierCosts
from leftoff.setting import SettingError
from leftoff.store.keys import namespace_hash

OBJECT_PROBLEMS = (BaseError, OSError, TimeoutError)
_CONNECT_S, _CALL_S = 2, 30  # a large blob takes its time
_LISTED_AT_ONCE = 1000
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
        """From the text after the fingerprint; None for an object that is no blob."""
        with suppress(ValueError):
            namespace, _, name = text.split("/")
            run, end, kind, start, tag = name.split(".")
            return cls(namespace, bytes.fromhex(run), int(end), int(kind), int(start), bytes.fromhex(tag))
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

    def __init__(self, url: str) -> None:
        self._store = _opened(url)

    async def get(self, name: str) -> Got:
        """`MissingError` if it is not there, one of `OBJECT_PROBLEMS` if the store fails."""
        began = time.perf_counter()
        try:
            result = await obstore.get_async(self._store, name)
        except FileNotFoundError as error:
            raise MissingError(name) from error
        call_ms = 1000 * (time.perf_counter() - began)
        return Got(memoryview(await result.bytes_async()), call_ms)

    async def put(self, name: str, data: bytes | bytearray) -> None:
        """Atomic. If two machines put one name at once, either may win: both objects hold the same state."""
        await obstore.put_async(self._store, name, data, use_multipart=len(data) > 64 << 20)

    async def put_if_absent(self, name: str, data: bytes) -> None:
        """If several machines put at once, the first wins; the last, where the store has no conditional put."""
        try:
            await obstore.put_async(self._store, name, data, mode="create", use_multipart=False)
        except (AlreadyExistsError, FileExistsError):
            return
        except (NotSupportedError, NotImplementedError):
            await self.put(name, data)

    async def delete(self, names: Sequence[str]) -> None:
        """Deletes those that are there."""
        for name in names:
            with suppress(FileNotFoundError):
                await obstore.delete_async(self._store, name)

    async def listed(self, prefix: str) -> AsyncIterator[list[Listed]]:
        """All objects under a prefix, some at a time."""
        async for chunk in obstore.list(self._store, prefix=prefix, chunk_size=_LISTED_AT_ONCE):
            yield [Listed.of(meta, len(prefix) + 1) for meta in chunk]

    async def groups(self) -> list[str]:
        """The beginnings of names before the first slash: the fingerprints."""
        listing = await obstore.list_with_delimiter_async(self._store)
        return sorted(str(prefix).strip("/") for prefix in listing["common_prefixes"])


def _opened(url: str) -> Any:  # noqa: ANN401  # obstore has a class for each kind of store
    try:
        if url.startswith("file://"):
            return from_url(url, mkdir=True)
        client: Any = {"connect_timeout": f"{_CONNECT_S}s", "timeout": f"{_CALL_S}s", "allow_http": True}
        retry: Any = {"max_retries": 1}
        return from_url(url, client_options=client, retry_config=retry)
    except (BaseError, ValueError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise SettingError(
            f"--store {url}: {reason}: give a URL such as s3://bucket/folder, gs://…, az://… or file:///mnt/shared"
        ) from error
