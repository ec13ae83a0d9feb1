"""Pages and snapshots as bytes that leave the process, and back.

llama.cpp accepts three quarters of all damaged states without a word, and aborts at some: so nothing that was outside
reaches it before its checksum, its origin and its shape have been verified.

    header (magic … tag) | checksum of header and payload | payload
"""

import struct
from dataclasses import dataclass
from typing import Self

import numpy as np
from blake3 import blake3

from leftoff.engine.arena import Arena, view_of
from leftoff.engine.base import Page, Snapshot
from leftoff.engine.errors import BlobError

FORMAT = 1
TAG_BYTES = 32
_MAGIC = b"leftoff\x00"
_CHECKSUM_BYTES = 32
# magic, format, kind, fingerprint, start, end, payload bytes, tag
_HEADER = struct.Struct(f"<8sHH32sqqQ{TAG_BYTES}s")
_PAGE, _SNAPSHOT = 1, 2

SEAL_BYTES = _HEADER.size + _CHECKSUM_BYTES


@dataclass(frozen=True)
class Seal:
    """What a header says. `tag` is the caller's own name for the content, such as a hash of its tokens."""

    kind: int
    fingerprint: bytes
    start: int
    end: int
    payload_bytes: int
    tag: bytes

    def pack(self) -> bytes:
        return _HEADER.pack(
            _MAGIC, FORMAT, self.kind, self.fingerprint, self.start, self.end, self.payload_bytes, self.tag
        )

    @classmethod
    def unpack(cls, header: bytes) -> Self:
        magic, version, *fields = _HEADER.unpack(header)
        if magic != _MAGIC:
            raise BlobError(f"not a leftoff blob: it begins with {magic!r}")
        if version != FORMAT:
            raise BlobError(f"a blob of format {version}: this leftoff reads format {FORMAT}")
        return cls(*fields)


def seal(item: Page | Snapshot, fingerprint: str, tag: bytes = bytes(TAG_BYTES)) -> bytes:
    """What to write before the item's own bytes."""
    start, end = (item.start, item.end) if isinstance(item, Page) else (item.position, item.position)
    kind = _PAGE if isinstance(item, Page) else _SNAPSHOT
    header = Seal(kind, bytes.fromhex(fingerprint), start, end, item.nbytes, tag).pack()
    return header + _checksum(header, view_of(item.data).data)


def unseal(blob: bytes | memoryview, fingerprint: str, arena: Arena, tag: bytes | None = None) -> Page | Snapshot:
    """The item, in memory of the arena, or `BlobError`. Only what this returns may be given to an engine."""
    blob = memoryview(blob)
    if blob.nbytes < SEAL_BYTES:
        raise BlobError(f"a blob of {blob.nbytes} bytes is cut short: its header alone has {SEAL_BYTES}")
    header, checksum, payload = blob[: _HEADER.size], blob[_HEADER.size : SEAL_BYTES], blob[SEAL_BYTES:]
    found = Seal.unpack(bytes(header))
    if found.payload_bytes != payload.nbytes:
        raise BlobError(f"a blob of {payload.nbytes} bytes that should have {found.payload_bytes}")
    if _checksum(bytes(header), payload) != bytes(checksum):
        raise BlobError("a blob whose checksum does not match: it was damaged")
    if found.fingerprint != bytes.fromhex(fingerprint):
        raise BlobError("a blob made by another model, library or KV type")
    if tag is not None and found.tag != tag:
        raise BlobError("a blob made from other tokens")
    buffer = arena.take(payload.nbytes)
    buffer.view[:] = np.frombuffer(payload, np.uint8)
    return Page(found.start, found.end, buffer) if found.kind == _PAGE else Snapshot(found.end, buffer)


def _checksum(header: bytes, payload: memoryview) -> bytes:
    return blake3(header).update(payload).digest()
