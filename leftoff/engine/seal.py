"""Pages and snapshots as bytes that leave the process, and back.

llama.cpp accepts three quarters of all damaged states without a word, and aborts at some: so nothing that was outside
reaches it before its checksum, its origin and its shape have been verified.

    header (magic … tag) | checksum of header and payload | payload
"""

import struct
from dataclasses import dataclass
from typing import Protocol, Self

from blake3 import blake3

from leftoff.engine.errors import BlobError
from leftoff.engine.memory.arena import Arena, view_of
from leftoff.engine.memory.base import Page, Snapshot

FORMAT = 1
FINGERPRINT_BYTES = 32
TAG_BYTES = 32
_MAGIC = b"leftoff\x00"
_CHECKSUM_BYTES = 32
# magic, format, kind, fingerprint, start, end, payload bytes, tag
_HEADER = struct.Struct(f"<8sHH{FINGERPRINT_BYTES}sqqQ{TAG_BYTES}s")
_CHUNK = 1 << 20  # a piece is hashed while the processor's cache still has it

PAGE, SNAPSHOT = 1, 2
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


class Source(Protocol):
    """An open file, or what reads like one."""

    def readinto(self, buffer: memoryview, /) -> int | None: ...


def seal(item: Page | Snapshot, fingerprint: str, tag: bytes = bytes(TAG_BYTES)) -> bytes:
    """What to write before the item's own bytes."""
    start, end = span_of(item)
    header = Seal(kind_of(item), bytes.fromhex(fingerprint), start, end, item.nbytes, tag).pack()
    return header + blake3(header).update(view_of(item.data).data).digest()


def unseal(source: Source, nbytes: int, fingerprint: str, arena: Arena, tag: bytes | None = None) -> Page | Snapshot:
    """The item in a blob of `nbytes`, read straight into memory of the arena, or `BlobError`.

    Only what this returns may be given to an engine.
    """
    if nbytes < SEAL_BYTES:
        raise BlobError(f"a blob of {nbytes} bytes is cut short: its header alone has {SEAL_BYTES}")
    head = bytearray(SEAL_BYTES)
    _fill(source, memoryview(head))
    header, checksum = bytes(head[: _HEADER.size]), bytes(head[_HEADER.size :])
    found = Seal.unpack(header)
    if found.payload_bytes != nbytes - SEAL_BYTES:
        raise BlobError(f"a blob of {nbytes - SEAL_BYTES} bytes that should have {found.payload_bytes}")
    buffer = arena.take(found.payload_bytes)
    if _filled_checksum(source, buffer.view.data, header) != checksum:
        raise BlobError("a blob whose checksum does not match: it was damaged")
    if found.fingerprint != bytes.fromhex(fingerprint):
        raise BlobError("a blob made by another model, library or KV type")
    if tag is not None and found.tag != tag:
        raise BlobError("a blob made from other tokens")
    return Page(found.start, found.end, buffer) if found.kind == PAGE else Snapshot(found.end, buffer)


def kind_of(item: Page | Snapshot) -> int:
    return PAGE if isinstance(item, Page) else SNAPSHOT


def span_of(item: Page | Snapshot) -> tuple[int, int]:
    """The positions [start, end) of a page; those of a snapshot are one."""
    return (item.start, item.end) if isinstance(item, Page) else (item.position, item.position)


def _filled_checksum(source: Source, payload: memoryview, header: bytes) -> bytes:
    hasher = blake3(header)
    for start in range(0, payload.nbytes, _CHUNK):
        piece = payload[start : start + _CHUNK]
        _fill(source, piece)
        hasher.update(piece)
    return hasher.digest()


def _fill(source: Source, view: memoryview) -> None:
    while view.nbytes:
        count = source.readinto(view)
        if not count:
            raise BlobError(f"a blob that is cut short: {view.nbytes} bytes or more are missing")
        view = view[count:]
