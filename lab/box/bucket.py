"""A bucket on paper: objects by name, as obstore's stores answer."""

import math
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from obstore.exceptions import AlreadyExistsError, GenericError

from lab.box.network import Part
from lab.box.world import Process, World

_TIMEOUT_S = 30.0  # of a call: `leftoff/store/objects.py`


class Bucket(Part):
    """The objects, and when each was lost last."""

    def __init__(self, world: World, name: str = "bucket") -> None:
        super().__init__(world, name)
        self.objects: dict[str, bytes] = {}
        self.is_full = False
        self.put_at: dict[str, float] = {}
        self.lost_at: dict[str, float] = {}

    def wipe(self, name: str | None = None) -> None:
        """Everything, or one object."""
        for each in [name] if name else [*self.objects]:
            self.objects.pop(each, None)
            self.lost_at[each] = self.world.now

    def owes(self, name: str) -> bool:
        """Whether an object was put, and not lost by a fault since."""
        return self.put_at.get(name, -math.inf) > self.lost_at.get(name, -math.inf)

    def mend(self) -> None:
        super().mend()
        self.is_full = False


class BucketClient:
    """What a store of obstore is to the code."""

    def __init__(self, bucket: Bucket, process: Process) -> None:
        self._bucket = bucket
        self._process = process

    async def _call(self, what: str, work: Any) -> Any:  # noqa: ANN401
        try:
            return await self._bucket.call(self._process, what, work, _TIMEOUT_S)
        except (TimeoutError, ConnectionRefusedError) as error:
            raise GenericError(f"{what}: {error or 'no answer'}") from error

    async def get_async(self, name: str) -> "Content":
        def get() -> Content:
            if name not in self._bucket.objects:
                raise FileNotFoundError(name)
            return Content(self._bucket.objects[name])

        found: Content = await self._call(f"get {name}", get)
        return found

    async def head_async(self, name: str) -> dict[str, int]:
        def head() -> dict[str, int]:
            if name not in self._bucket.objects:
                raise FileNotFoundError(name)
            return {"size": len(self._bucket.objects[name])}

        found: dict[str, int] = await self._call(f"head {name}", head)
        return found

    async def put_async(self, name: str, data: bytes, mode: str = "overwrite", use_multipart: bool = False) -> None:  # noqa: ARG002
        content = bytes(data)

        def put() -> None:
            if self._bucket.is_full:
                raise GenericError("507 Insufficient Storage")
            if mode == "create" and name in self._bucket.objects:
                raise AlreadyExistsError(name)
            self._bucket.objects[name] = content
            self._bucket.put_at[name] = self._bucket.world.now

        await self._call(f"put {name}", put)

    async def delete_async(self, name: str) -> None:
        await self._call(f"delete {name}", lambda: self._bucket.objects.pop(name, None))

    async def list(self, prefix: str = "", chunk_size: int = 1000) -> AsyncIterator[list[dict[str, Any]]]:
        def listed() -> list[dict[str, Any]]:
            names = sorted(name for name in self._bucket.objects if name.startswith(f"{prefix}/"))
            when = datetime.fromtimestamp(self._bucket.world.now, UTC)
            return [{"path": name, "size": len(self._bucket.objects[name]), "last_modified": when} for name in names]

        found = await self._call(f"list {prefix}", listed)
        for start in range(0, len(found), chunk_size):
            yield found[start : start + chunk_size]

    async def list_with_delimiter_async(self, prefix: str | None = None) -> dict[str, Any]:
        start = f"{prefix}/" if prefix else ""

        def listed() -> dict[str, Any]:
            names = (name[len(start) :] for name in self._bucket.objects if name.startswith(start))
            return {"common_prefixes": sorted({start + name.partition("/")[0] for name in names if "/" in name})}

        found: dict[str, Any] = await self._call(f"folders {prefix}", listed)
        return found


class Content:
    """The result of a get."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    async def bytes_async(self) -> bytes:
        return self._content
