"""Pages and snapshots as bytes that leave the process, and back: a header and a checksum before the payload.

llama.cpp accepts three quarters of all damaged states silently, and aborts on some of the others. So nothing from disk
or from another machine reaches it before checksum, origin and size were verified.

    header (magic … tag) | checksum of header and payload | payload

With a key the checksum is a MAC: who has not the key cannot make a blob that passes.
"""

import hmac
import struct
from typing import Protocol

from blake3 import blake3

from leftoff.engine.errors import BlobError
from leftoff.engine.memory.arena import Arena, view_of
from leftoff.engine.memory.base import Bytes, Page, Snapshot, WindowPage

FORMAT, KEYED_FORMAT = 1, 2
FINGERPRINT_BYTES = 32
TAG_BYTES = 32
_MAGIC = b"leftoff\x00"
_CHECKSUM_BYTES = 32
# magic, format, kind, fingerprint, start, end, payload bytes, tag (the caller's hash of the tokens)
_HEADER = struct.Struct(f"<8sHH{FINGERPRINT_BYTES}sqqQ{TAG_BYTES}s")
_CHUNK = 1 << 20  # hashed while it is still in the CPU's cache
_LARGE = 16 << 20  # a blob from this size on is hashed by all cores

PAGE, SNAPSHOT, WINDOW_PAGE = 1, 2, 3
SEAL_BYTES = _HEADER.size + _CHECKSUM_BYTES


class Source(Protocol):
    """An open file, or anything that reads like one."""

    def readinto(self, buffer: memoryview, /) -> int | None: ...


def seal(item: Page | Snapshot, fingerprint: str, tag: bytes, key: bytes | None = None) -> bytes:
    """The header and checksum to write before the item's own bytes."""
    origin = bytes.fromhex(fingerprint)
    nbytes = item.data.nbytes  # of a snapshot without its window pages: these are blobs of their own
    header = _HEADER.pack(_MAGIC, _format(key), kind_of(item), origin, *span_of(item), nbytes, tag)
    return header + _hasher(header, nbytes, key).update(view_of(item.data).data).digest()


def unseal(
    source: Source,
    nbytes: int,
    fingerprint: str,
    arena: Arena,
    tag: bytes | None = None,
    key: bytes | None = None,
) -> Page | Snapshot:
    """Reads a blob of `nbytes` into a buffer of the arena and verifies it; `BlobError` if anything is wrong.

    Only what this returns may be given to an engine.
    """
    if nbytes < SEAL_BYTES:
        raise BlobError(f"a blob of {nbytes} bytes is cut short: its header alone has {SEAL_BYTES}")
    head = bytearray(SEAL_BYTES)
    _fill(source, memoryview(head))
    header, checksum = bytes(head[: _HEADER.size]), bytes(head[_HEADER.size :])
    magic, version, kind, origin, start, end, payload_bytes, found_tag = _HEADER.unpack(header)
    if magic != _MAGIC:
        raise BlobError(f"not a leftoff blob: it begins with the bytes {bytes(magic).hex(' ')}")
    if version != _format(key):
        raise BlobError(f"a blob of format {version}: this leftoff reads format {_format(key)} here")
    if payload_bytes != nbytes - SEAL_BYTES:
        raise BlobError(f"a blob of {nbytes - SEAL_BYTES} bytes that should have {payload_bytes}")
    buffer = arena.take(payload_bytes)
    if not hmac.compare_digest(_filled_checksum(source, buffer.view.data, header, key), checksum):
        raise BlobError("a blob whose checksum does not match: it was damaged")
    if origin != bytes.fromhex(fingerprint):
        raise BlobError("a blob made by another model, library or KV type")
    if tag is not None and found_tag != tag:
        raise BlobError("a blob made from other tokens")
    return made_of(kind, start, end, buffer)


def kind_of(item: Page | Snapshot) -> int:
    """The number by which blobs tell pages from snapshots."""
    if isinstance(item, Snapshot):
        return SNAPSHOT
    return WINDOW_PAGE if isinstance(item, WindowPage) else PAGE


def made_of(kind: int, start: int, end: int, data: Bytes) -> Page | Snapshot:
    """The item of a kind; a snapshot is without its window pages."""
    if kind == SNAPSHOT:
        return Snapshot(end, data)
    return WindowPage(start, end, data) if kind == WINDOW_PAGE else Page(start, end, data)


def span_of(item: Page | Snapshot) -> tuple[int, int]:
    """The positions [start, end) of a page; for a snapshot both are its position."""
    return (item.start, item.end) if isinstance(item, Page) else (item.position, item.position)


def _format(key: bytes | None) -> int:
    return FORMAT if key is None else KEYED_FORMAT


def _hasher(header: bytes, nbytes: int, key: bytes | None) -> blake3:
    threads = blake3.AUTO if nbytes >= _LARGE else 1
    return blake3(header, max_threads=threads) if key is None else blake3(header, key=key, max_threads=threads)


def _filled_checksum(source: Source, payload: memoryview, header: bytes, key: bytes | None) -> bytes:
    hasher = _hasher(header, payload.nbytes, key)
    chunk = _LARGE // 4 if payload.nbytes >= _LARGE else _CHUNK
    for start in range(0, payload.nbytes, chunk):
        piece = payload[start : start + chunk]
        _fill(source, piece)
        hasher.update(piece)
    return hasher.digest()


def _fill(source: Source, view: memoryview) -> None:
    while view.nbytes:
        count = source.readinto(view)
        if not count:
            raise BlobError(f"a blob that is cut short: {view.nbytes} bytes or more are missing")
        view = view[count:]
