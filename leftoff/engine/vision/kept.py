"""Embeddings of pictures that were encoded: the latest in RAM, within a budget of bytes, and more on disk.

On disk each image chunk is a header and its numbers, as they lie in memory:

    num_tokens u32, width u32, has_positions u8, is_causal u8 | rows f32 | positions i32, four for each token
"""

import struct
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from leftoff.lru import LruCache
from leftoff.types import Embeddings

Encoded = tuple[Embeddings, ...]  # of each image chunk of a picture

_CHUNK = struct.Struct("<II??")
_SECTIONS = 4  # coordinates of a token with M-RoPE


class PictureMedium(Protocol):
    """Keeps bytes by namespace and key beyond the end of the process, and returns them verified or not at all."""

    def get(self, namespace: str, key: bytes) -> bytes | None: ...
    def put(self, namespace: str, key: bytes, content: bytes) -> None: ...
    def remove(self, is_meant: Callable[[str], bool]) -> None: ...


class KeptPictures:
    """Embeddings by the namespace of a picture and its key. Any thread may call it."""

    def __init__(
        self, most_bytes: int, medium: PictureMedium | None = None, count: Callable[[int], None] = lambda _: None
    ) -> None:
        """`count` is told how many bytes there are in RAM."""
        self._ram: LruCache[tuple[str, bytes], Encoded] = LruCache(
            max_bytes=most_bytes, size_of=lambda _, encoded: sum(part.nbytes for part in encoded)
        )
        self._medium = medium
        self._count = count

    @property
    def num_bytes(self) -> int:
        """The bytes of embeddings in RAM."""
        return self._ram.num_bytes

    def get(self, namespace: str, key: bytes) -> Encoded | None:
        found = self._ram.get((namespace, key))
        if found is None and self._medium is not None:
            content = self._medium.get(namespace, key)
            found = tuple(_read(content)) if content is not None else None
            if found is not None:
                self._put(namespace, key, found)
        return found

    def _put(self, namespace: str, key: bytes, encoded: Encoded) -> None:
        self._ram.put((namespace, key), encoded)
        self._count(self._ram.num_bytes)

    def put(self, namespace: str, key: bytes, encoded: Encoded) -> None:
        self._put(namespace, key, encoded)
        if self._medium is not None:
            self._medium.put(namespace, key, b"".join(map(_written, encoded)))

    def remove(self, is_meant: Callable[[str], bool]) -> None:
        """Forgets the pictures of the namespaces that are meant. Raises `OSError`."""
        for namespace, key in [entry for entry, _ in self._ram.items()]:
            if is_meant(namespace):
                self._ram.pop((namespace, key))
        self._count(self._ram.num_bytes)
        if self._medium is not None:
            self._medium.remove(is_meant)


def _written(part: Embeddings) -> bytes:
    head = _CHUNK.pack(*part.rows.shape, part.positions is not None, part.is_causal)
    return head + part.rows.tobytes() + (part.positions.tobytes() if part.positions is not None else b"")


def _read(content: bytes) -> Iterator[Embeddings]:
    offset = 0
    while offset < len(content):
        num_tokens, width, has_positions, is_causal = _CHUNK.unpack_from(content, offset)
        offset += _CHUNK.size
        rows = np.frombuffer(content, np.float32, num_tokens * width, offset).reshape(num_tokens, width)
        offset += rows.nbytes
        positions = None
        if has_positions:
            numbers = np.frombuffer(content, np.int32, _SECTIONS * num_tokens, offset)
            positions = numbers.reshape(_SECTIONS, num_tokens)
            offset += positions.nbytes
        yield Embeddings(rows, positions, is_causal)
