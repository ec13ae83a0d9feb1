"""A tier: a tree of pages and snapshots for each namespace, all under one byte budget."""

from collections.abc import Callable

from leftoff.cache.budget import ByteBudget, Clock
from leftoff.cache.node import Match
from leftoff.cache.tree import Tree
from leftoff.types import Tokens

_MAX_BARE_TREES = 512


class Tier:
    """Matches prompts against the trees of their namespaces. `save.py` decides what is added, and when."""

    def __init__(self, budget: ByteBudget, clock: Clock) -> None:
        self.budget = budget
        self.trees: dict[str, Tree] = {}
        self._clock = clock

    def tree(self, namespace: str) -> Tree:
        """The tree of a namespace, made when it is asked for first."""
        if namespace not in self.trees:
            self.trees[namespace] = Tree()
        return self.trees[namespace]

    def match(self, namespace: str, tokens: Tokens) -> Match:
        tree = self.trees.get(namespace)
        return tree.match(tokens) if tree is not None else Match((), 0)

    def insert(self, namespace: str, tokens: Tokens) -> Match:
        self.budget.num_changes += 1
        return self.tree(namespace).insert(tokens, self._clock())

    @property
    def num_tokens(self) -> int:
        return sum(tree.num_tokens for tree in self.trees.values())

    def drop(self, namespace: str, tokens: Tokens, start: int) -> None:
        """Drops the resume points after `start` on the path of these tokens and below it, with their pages."""
        match = self.match(namespace, tokens)
        if match.length < tokens.size:
            return
        waiting = [node for node in match.path if node.end > start]
        points = []
        while waiting:
            node = waiting.pop()
            points += [point for point in node.points if point.position > start]
            waiting += node.children.values() if node is match.path[-1] or node not in match.path else ()
        for point in points:
            self.budget.drop(point)

    def clear(self, is_meant: Callable[[str], bool]) -> None:
        """Drops the trees of all namespaces that are meant."""
        for namespace in filter(is_meant, list(self.trees)):
            tree = self.trees.pop(namespace)
            for point in [point for node in tree.nodes() for point in node.points]:
                self.budget.drop(point)

    def forget_oldest(self, limit: int) -> None:
        """Bounds the tokens that are kept without data, only to explain misses: the older half of them goes."""
        self.budget.num_changes += 1
        self._forget_bare_trees()
        if self.num_tokens <= limit:
            return
        for tree in self.trees.values():
            ghosts = [node for node in tree.nodes() if node.is_leaf and not node.is_live]
            for node in sorted(ghosts, key=lambda node: node.last_used)[: len(ghosts) // 2 + 1]:
                if node.parent is not None and node.is_leaf and not node.is_live:  # it may have grown by a merge
                    tree.forget(node)

    def _forget_bare_trees(self) -> None:
        """Bounds the trees without data: clients may name a new namespace with every request."""
        bare = [namespace for namespace, tree in self.trees.items() if not tree.root.is_live]
        if len(bare) > _MAX_BARE_TREES:
            for namespace in bare[: len(bare) // 2]:
                del self.trees[namespace]

    def check_integrity(self) -> None:
        """Raises AssertionError if anything contradicts itself. For tests."""
        for tree in self.trees.values():
            tree.check_integrity()
        self.budget.check_integrity(list(self.trees.values()))
