"""Hashes of token paths: the *tag* of a path is a hash of its namespace and all of its tokens.

The index stores a path as runs of 1,024 tokens, and the remainder up to the end of an item:

    [ 0 ··· 1,024 )[ 1,024 ··· 2,048 )[ 2,048 ··· end )      each run with the tags of the path before and after it
"""

from typing import Self

import numpy as np
from blake3 import blake3

from leftoff.types import Tokens

RUN_TOKENS = 1024
TOKEN_BYTES = 4


class PathHash:
    """Reads a path piece by piece; `tag` is the hash up to there."""

    def __init__(self, namespace: str) -> None:
        name = namespace.encode()
        self._hasher = blake3(len(name).to_bytes(8, "little") + name)

    @property
    def tag(self) -> bytes:
        return self._hasher.digest()

    def read(self, tokens: bytes | memoryview) -> Self:
        self._hasher.update(tokens)
        return self

    def copy(self) -> "PathHash":
        other = PathHash.__new__(PathHash)
        other._hasher = self._hasher.copy()
        return other


def as_bytes(tokens: Tokens) -> memoryview:
    """Tokens as they are hashed and stored: little-endian on every machine."""
    return np.ascontiguousarray(tokens, "<i4").view(np.uint8).data


def as_tokens(content: bytes) -> Tokens:
    """Tokens from the bytes in which the index stores them."""
    return np.frombuffer(content, "<i4").astype(np.int32)
