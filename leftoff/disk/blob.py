"""One file of the shelf, as the index knows it: enough to verify the file, and nothing of its content."""

import struct
from dataclasses import dataclass

from blake3 import blake3

from leftoff.cache.blob_store import Item
from leftoff.disk import clock
from leftoff.disk.path_hash import Chain, as_bytes
from leftoff.engine.errors import BlobError
from leftoff.engine.memory.base import Bytes, Page, Snapshot
from leftoff.engine.seal import PAGE, SEAL_BYTES, kind_of, span_of
from leftoff.types import Tokens

_NAME_BYTES = 20
_IDENTITY = struct.Struct("<Hq")


@dataclass(frozen=True, slots=True)
class Blob:
    """An item of positions [start, end) on the path that `tag` names. Two of one name hold the same."""

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
    def of(cls, item: Item, namespace: str, tokens: Tokens) -> "Blob":
        kind, (start, end) = kind_of(item), span_of(item)
        tag = Chain(namespace).read(as_bytes(tokens[:end])).tag
        return cls(blob_name(kind, start, tag), kind, tag, namespace, start, end, item.nbytes, clock.now(), 0)

    @property
    def file_bytes(self) -> int:
        return SEAL_BYTES + self.nbytes

    @property
    def is_page(self) -> bool:
        return self.kind == PAGE

    def holding(self, data: Bytes) -> Item:
        return Page(self.start, self.end, data) if self.is_page else Snapshot(self.end, data)

    def check(self, item: Item) -> None:
        if (kind_of(item), *span_of(item)) != (self.kind, self.start, self.end):
            raise BlobError(f"a blob of other positions than [{self.start}, {self.end})")


def blob_name(kind: int, start: int, tag: bytes) -> str:
    return blake3(_IDENTITY.pack(kind, start) + tag).hexdigest(_NAME_BYTES)
