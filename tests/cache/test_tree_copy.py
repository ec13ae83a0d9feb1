"""A tree is copied as it is: all of it, or the nodes that were used last with all that leads to them."""

from lab.simulate.policies import LeastRecentlyUsed
from leftoff.cache.budget import ByteBudget
from leftoff.cache.tier import Tier
from leftoff.cache.tree_copy import NodeCopy, PageCopy, copy_tree
from tests.cache.trees import UNLIMITED, Clock, Grove


def grown(*texts: str) -> Tier:
    """A tier with a snapshot after each text, and pages up to there."""
    grove = Grove()
    for letters in texts:
        grove.cover(letters, 0, len(letters))
        grove.keep(letters)
    tier = Tier(ByteBudget("RAM", UNLIMITED, LeastRecentlyUsed(), Clock()), Clock())
    tier.budget, tier.trees["chats"] = grove.budget, grove.tree
    return tier


def letters_of(roots: list[NodeCopy]) -> list[str]:
    return sorted("".join(map(chr, node.tokens)) for root in roots for node in root.nodes())


def test_all_is_copied_and_nothing_is_held() -> None:
    tier = grown("header one", "header two", "other")
    tree = copy_tree(tier, "chats")
    assert tree.is_whole
    assert letters_of([*tree.roots]) == ["header ", "one", "other", "two"]
    (header,) = (root for root in tree.roots if root.children)
    assert (header.source, header.start, header.end) == ("RAM", 0, 7)
    assert header.pages == [PageCopy(0, 7, 0, 10, 100)], "of a page that goes on below"
    (point,) = header.children[0].points
    assert (point.position, point.nbytes, point.hits, point.is_pinned, point.has_logits) == (10, 100, 0, False, False)


def test_of_many_nodes_those_are_copied_that_were_used_last() -> None:
    tier = grown("header one", "other", "header two")
    assert letters_of([*copy_tree(tier, "chats", 2).roots]) == ["header ", "two"]
    assert not copy_tree(tier, "chats", 3).is_whole
    assert copy_tree(tier, "chats", 4).is_whole


def test_what_is_known_without_data_is_left_out() -> None:
    tier = grown("header one")
    tier.trees["chats"].insert(copy_tree(tier, "chats").roots[0].tokens[::-1].copy(), 100.0)
    assert letters_of([*copy_tree(tier, "chats").roots]) == ["header one"]
