"""Small trees for the tests: tokens, pages and snapshots without an engine."""

from dataclasses import dataclass, field

import numpy as np

from lab.simulate.policies import LeastRecentlyUsed
from leftoff.cache.budget import ByteBudget
from leftoff.cache.capacity import Capacity
from leftoff.cache.costs import Costs
from leftoff.cache.node import Match, Node, ResumePoint
from leftoff.cache.policy import Policy
from leftoff.cache.tree import Tree
from leftoff.engine.memory.base import Page, Snapshot
from leftoff.types import Logits, Tokens

UNLIMITED = 1 << 50


@dataclass(frozen=True)
class Weight:
    """Stands for saved bytes of which only the number counts."""

    nbytes: int


def run(*parts: tuple[int, int]) -> Tokens:
    """Tokens of `(value, count)` pieces: `run((1, 3), (2, 1))` is 1 1 1 2."""
    return np.concatenate([np.full(count, value, np.int32) for value, count in parts])


def text(letters: str) -> Tokens:
    """One token per letter."""
    return np.frombuffer(letters.encode(), np.uint8).astype(np.int32)


def page(start: int, end: int, bytes_per_token: int = 10) -> Page:
    return Page(start, end, Weight(bytes_per_token * (end - start)))


def snapshot(position: int, nbytes: int = 100) -> Snapshot:
    return Snapshot(position, Weight(nbytes))


@dataclass
class Clock:
    """Goes on by one at every look."""

    now: float = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@dataclass
class Grove:
    """A tree with its budget, and words to fill them with."""

    budget_bytes: int | Capacity = UNLIMITED
    policy: Policy = field(default_factory=LeastRecentlyUsed)
    tree: Tree = field(default_factory=Tree)
    clock: Clock = field(default_factory=Clock)
    costs: Costs = field(default_factory=Costs)

    def __post_init__(self) -> None:
        self.budget = ByteBudget("RAM", self.budget_bytes, self.policy, self.clock, costs=self.costs)
        self.budget.capacity.join(self.budget)

    def match(self, letters: str) -> Match:
        return self.tree.insert(text(letters), self.clock())

    def keep(self, letters: str, *, nbytes: int = 100, logits: Logits | None = None) -> ResumePoint:
        """A snapshot after exactly these letters."""
        match = self.match(letters)
        return self.budget.add_point(match, len(letters), snapshot(len(letters), nbytes), logits)

    def mark(self, letters: str) -> ResumePoint:
        """A point without a snapshot, as attention has."""
        return self.budget.add_point(self.match(letters), len(letters), None)

    def cover(self, letters: str, start: int, end: int) -> None:
        self.budget.add_page(self.match(letters), page(start, end))

    def check(self) -> None:
        self.tree.check_integrity()
        self.budget.check_integrity([self.tree])


def shape(tree: Tree) -> dict[str, str]:
    """Every node's letters by the whole text that ends there."""
    return {whole(node): "".join(map(chr, node.tokens)) for node in tree.nodes()}


def whole(node: Node) -> str:
    letters, at = "", node
    while at.parent is not None:
        letters = "".join(map(chr, at.tokens)) + letters
        at = at.parent
    return letters
