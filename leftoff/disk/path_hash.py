"""Names for paths of tokens: the tag after n tokens is a hash of the namespace and of all n.

[ cell 0: 1,024 tokens )[ cell 1 ) ··· [ cell g )[ the rest, up to the end of an item )
"""

from typing import Self

import numpy as np
from blake3 import blake3

from leftoff.types import Tokens

CELL_TOKENS = 1024
TOKEN_BYTES = 4


class Chain:
    """Goes along a path, and knows the tag of where it stands."""

    def __init__(self, namespace: str) -> None:
        name = namespace.encode()
        self._hasher = blake3(len(name).to_bytes(8, "little") + name)

    @property
    def tag(self) -> bytes:
        return self._hasher.digest()

    def read(self, tokens: bytes | memoryview) -> Self:
        self._hasher.update(tokens)
        return self

    def copy(self) -> "Chain":
        other = Chain.__new__(Chain)
        other._hasher = self._hasher.copy()
        return other


def as_bytes(tokens: Tokens) -> memoryview:
    """Tokens as they are hashed and kept: little-endian, on every machine."""
    return np.ascontiguousarray(tokens, "<i4").view(np.uint8).data


def as_tokens(content: bytes) -> Tokens:
    return np.frombuffer(content, "<i4").astype(np.int32)
