"""The trees of slots, RAM and disk as one: how copies of their nodes are merged.

RAM   [0 ···· 40)──[40 ······ 300)           [0 ···· 40)──[40 ·· 90)──[90 ·· 300)
slot  [0 ············· 90)            →                ╰──[40 · 60)
disk  [0 ···· 40)──[40 · 60)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from blake3 import blake3
from msgspec import Struct

from leftoff.cache.node import WIDTH
from leftoff.cache.tree import common_prefix
from leftoff.cache.tree_copy import NodeCopy
from leftoff.types import Tokens

_DIGITS = 20


class PointView(Struct):
    """A position that a prompt can resume from."""

    position: int
    tier: str
    bytes: int
    hits: int
    is_pinned: bool


class Held(NamedTuple):
    """How many tokens of a node have pages in a tier, and the bytes of those and of its resume points there."""

    num_tokens: int
    num_bytes: int


@dataclass(slots=True)
class Merged:
    """Tokens [start, end) of a path that one or several sources hold."""

    parent: "Merged | None"
    start: int
    key: bytes
    copies: list[NodeCopy]
    hasher: blake3

    @property
    def end(self) -> int:
        return self.start + len(self.key) // WIDTH

    @property
    def id(self) -> str:
        return self.hasher.hexdigest()[:_DIGITS]

    @property
    def points(self) -> list[PointView]:
        return [
            PointView(point.position, copy.source, point.nbytes, point.hits, point.is_pinned)
            for copy in self.copies
            for point in copy.points
            if self.start < point.position <= self.end
        ]

    @property
    def path(self) -> Tokens:
        keys: list[bytes] = []
        at: Merged | None = self
        while at is not None:
            keys.append(at.key)
            at = at.parent
        return np.frombuffer(b"".join(reversed(keys)), np.int32)

    def before(self, num_tokens: int) -> Tokens:
        """The last so many tokens of the path that leads to this node."""
        keys: list[bytes] = []
        at, num_bytes = self.parent, num_tokens * WIDTH
        while at is not None and num_bytes:
            keys.append(at.key[-num_bytes:])
            at, num_bytes = at.parent, num_bytes - len(keys[-1])
        return np.frombuffer(b"".join(reversed(keys)), np.int32)

    def held(self, tier: str) -> Held:
        pages = [page for copy in self.copies if copy.source == tier for page in copy.pages]
        tokens = [max(0, min(page.end, self.end) - max(page.start, self.start)) for page in pages]
        shares = [page.nbytes / (page.page_end - page.page_start) for page in pages]
        page_bytes = sum(num * share for num, share in zip(tokens, shares, strict=True))
        return Held(sum(tokens), round(page_bytes) + sum(point.bytes for point in self.points if point.tier == tier))


def merge(roots: Sequence[NodeCopy]) -> Iterator[Merged]:
    """The nodes of all sources as one tree, parents first. A node ends where one of its sources ends or parts."""
    waiting: list[tuple[Merged | None, int, list[NodeCopy]]] = [(None, 0, group) for group in _grouped(roots, 0)]
    while waiting:
        parent, start, copies = waiting.pop()
        rests = [copy.key[(start - copy.start) * WIDTH :] for copy in copies]
        tokens = [np.frombuffer(rest, np.int32) for rest in rests]
        size = min(common_prefix(tokens[0], others) for others in tokens) * WIDTH
        hasher = (parent.hasher.copy() if parent is not None else blake3()).update(rests[0][:size])
        node = Merged(parent, start, rests[0][:size], copies, hasher)
        yield node
        goes_on = [copy for copy, rest in zip(copies, rests, strict=True) if len(rest) > size]
        begin = [
            child for copy, rest in zip(copies, rests, strict=True) if len(rest) == size for child in copy.children
        ]
        waiting += [(node, node.end, group) for group in _grouped([*goes_on, *begin], node.end)]


def _grouped(copies: Sequence[NodeCopy], start: int) -> list[list[NodeCopy]]:
    """The copies in groups by their next token."""
    groups: dict[bytes, list[NodeCopy]] = {}
    for copy in copies:
        offset = (start - copy.start) * WIDTH
        groups.setdefault(copy.key[offset : offset + WIDTH], []).append(copy)
    return [*groups.values()]
