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
SHORT_TAG_BYTES = 16


class PathHash:
    """Reads a path part by part; `tag` is the hash up to there."""

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


class HashedPath:
    """A path that is hashed once, however many items lie on it: the hashes after whole runs are remembered.

    One thread hashes on; others may ask again for tags that it has had.
    """

    def __init__(self, namespace: str, tokens: Tokens) -> None:
        self.namespace = namespace
        self.tokens = tokens
        self._after_runs = [PathHash(namespace)]  # after 0, 1, 2, … whole runs

    def reused_for(self, namespace: str, tokens: Tokens) -> "HashedPath":
        """This path if it has these very tokens, else a new one: items of one path are put one after the other."""
        is_same = self.tokens is tokens and self.namespace == namespace
        return self if is_same else HashedPath(namespace, tokens)

    def tag(self, end: int) -> bytes:
        """The tag of the path up to `end`."""
        num_runs, rest = divmod(end, RUN_TOKENS)
        while len(self._after_runs) <= num_runs:
            self._after_runs.append(self._after_runs[-1].copy().read(self.run(len(self._after_runs) * RUN_TOKENS)))
        after = self._after_runs[num_runs]
        return after.copy().read(self.run(end)).tag if rest else after.tag

    def run(self, end: int) -> memoryview:
        """The tokens of the run that ends at `end`, a whole one or a part."""
        return as_bytes(self.tokens[run_start(end) : end])


def short(tag: bytes) -> bytes:
    """A tag as it is told to other machines."""
    return tag[:SHORT_TAG_BYTES]


def run_start(end: int) -> int:
    """Where the run begins that ends at `end`, or reaches past it."""
    return (end - 1) // RUN_TOKENS * RUN_TOKENS


def as_bytes(tokens: Tokens) -> memoryview:
    """Tokens as they are hashed and stored: little-endian on every machine."""
    return np.ascontiguousarray(tokens, "<i4").view(np.uint8).data


def as_tokens(content: bytes) -> Tokens:
    """Tokens from the bytes in which the index stores them."""
    return np.frombuffer(content, "<i4").astype(np.int32)
