"""A page or snapshot on a medium as its index knows it, and the request to write one. The content is on the medium."""

import struct
from dataclasses import dataclass

from blake3 import blake3

from leftoff.blobs import clock
from leftoff.blobs.path_hash import HashedPath, run_start
from leftoff.cache.blob_store import Item, Worth
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
    run: bytes = b""  # the tag at the start of the run of tokens in which it ends

    @classmethod
    def of(cls, item: Item, path: HashedPath) -> "Blob":
        return cls.at(kind_of(item), *span_of(item), item.data.nbytes, path)

    @classmethod
    def at(cls, kind: int, start: int, end: int, nbytes: int, path: HashedPath) -> "Blob":
        tag = path.tag(end)
        run = path.tag(run_start(end)) if end else tag
        return cls(blob_name(kind, start, tag), kind, tag, path.namespace, start, end, nbytes, clock.now(), 0, run)

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
    worth: Worth = Worth.MIDDLE


def blob_name(kind: int, start: int, tag: bytes) -> str:
    """The file name of a page or snapshot: a hash of its kind and path."""
    return blake3(_IDENTITY.pack(kind, start) + tag).hexdigest(_NAME_BYTES)
