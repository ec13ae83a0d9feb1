"""One file of the store as the index knows it, and the request to write one. The content is in the file alone."""

import struct
from dataclasses import dataclass

from blake3 import blake3

from leftoff.cache.blob_store import Item
from leftoff.disk import clock
from leftoff.disk.path_hash import HashedPath
from leftoff.engine.errors import BlobError
from leftoff.engine.memory.base import Bytes
from leftoff.engine.seal import PAGE, SEAL_BYTES, SNAPSHOT, WINDOW_PAGE, kind_of, made_of, span_of

_NAME_BYTES = 20
_IDENTITY = struct.Struct("<Hq")


@dataclass(frozen=True, slots=True)
class Blob:
    """A page or window page of positions [start, end), or a snapshot at `end`, on the path of tokens with hash `tag`.

    The name is a hash of kind, start and tag: blobs of the same name have the same content.
    """

    name: str
    kind: int
    tag: bytes
    namespace: str
    start: int
    end: int
    nbytes: int
    last_used: float
    hits: int

    @classmethod
    def of(cls, item: Item, path: HashedPath) -> "Blob":
        return cls.at(kind_of(item), *span_of(item), item.data.nbytes, path)

    @classmethod
    def at(cls, kind: int, start: int, end: int, nbytes: int, path: HashedPath) -> "Blob":
        tag = path.tag(end)
        return cls(blob_name(kind, start, tag), kind, tag, path.namespace, start, end, nbytes, clock.now(), 0)

    @property
    def file_bytes(self) -> int:
        return SEAL_BYTES + self.nbytes

    @property
    def is_page(self) -> bool:
        return self.kind == PAGE

    @property
    def is_window_page(self) -> bool:
        return self.kind == WINDOW_PAGE

    @property
    def is_snapshot(self) -> bool:
        return self.kind == SNAPSHOT

    def holding(self, data: Bytes) -> Item:
        return made_of(self.kind, self.start, self.end, data)

    def check(self, item: Item) -> None:
        if (kind_of(item), *span_of(item)) != (self.kind, self.start, self.end):
            raise BlobError(f"a blob of other positions than [{self.start}, {self.end})")


@dataclass(frozen=True)
class Write:
    """A blob to be written: its content, and the path of tokens that it lies on."""

    blob: Blob
    item: Item
    path: HashedPath


def blob_name(kind: int, start: int, tag: bytes) -> str:
    """The file name of a page or snapshot: a hash of its kind and path."""
    return blake3(_IDENTITY.pack(kind, start) + tag).hexdigest(_NAME_BYTES)
