"""The tree knows every prefix it was shown, stores what is shared once, and is reshaped only where texts part."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leftoff.cache.node import Node
from leftoff.cache.tree import Tree, common_prefix
from tests.cache.trees import Grove, shape, text, whole

LETTERS = st.text("ab", min_size=1, max_size=12)


def tree_of(*texts: str) -> Tree:
    tree = Tree()
    for now, letters in enumerate(texts):
        tree.insert(text(letters), float(now))
        tree.check_integrity()
    return tree


def ghosts(tree: Tree) -> list[Node]:
    return [node for node in tree.nodes() if node.is_leaf and not node.holds_data]


# --- against a set of prefixes


@given(st.lists(LETTERS, max_size=12), LETTERS)
def test_a_match_is_the_longest_prefix_ever_shown(texts: list[str], asked: str) -> None:
    tree = tree_of(*texts)
    prefixes = {letters[:size] for letters in texts for size in range(len(letters) + 1)}
    known = max(size for size in range(len(asked) + 1) if asked[:size] in prefixes or size == 0)
    match = tree.match(text(asked))
    assert match.length == known
    assert tree.num_tokens == len(prefixes - {""}), "what is shared is stored once"
    assert match.leaves_midway == (known > 0 and any(asked[:known] + more in prefixes for more in "ab"))


@given(st.lists(LETTERS, min_size=1, max_size=12), st.data())
def test_the_continuation_is_one_that_was_shown(texts: list[str], data: st.DataObject) -> None:
    tree = tree_of(*texts)
    asked = data.draw(st.sampled_from(texts))[: data.draw(st.integers(1, 12))]
    going_on = asked + "".join(map(chr, tree.match(text(asked)).continuation))
    assert any(letters.startswith(going_on) for letters in texts)


@given(st.lists(LETTERS, min_size=1, max_size=12), st.data())
def test_showing_a_known_prefix_never_reshapes_the_tree(texts: list[str], data: st.DataObject) -> None:
    tree = tree_of(*texts)
    before = shape(tree)
    known = data.draw(st.sampled_from(texts))
    tree.insert(text(known[: data.draw(st.integers(1, len(known)))]), 99.0)
    assert shape(tree) == before


@given(st.lists(LETTERS, min_size=1, max_size=12), st.data())
def test_forgetting_everything_leaf_by_leaf_leaves_nothing(texts: list[str], data: st.DataObject) -> None:
    tree = tree_of(*texts)
    while leaves := ghosts(tree):
        leaf = data.draw(st.sampled_from(leaves))
        gone = whole(leaf)
        tree.forget(leaf)
        tree.check_integrity()
        assert tree.match(text(gone)).length < len(gone)
    assert tree.num_tokens == 0


@settings(max_examples=200)
@given(st.data())
def test_snapshots_and_pages_stay_where_they_are_while_texts_part_and_are_forgotten(data: st.DataObject) -> None:
    grove = Grove()
    kept: dict[str, object] = {}
    pages: dict[str, object] = {}
    for letters in data.draw(st.lists(LETTERS, min_size=1, max_size=10)):
        if data.draw(st.booleans()):
            kept[letters] = grove.keep(letters)
            grove.cover(letters, 0, len(letters))
        else:
            grove.match(letters)
        if data.draw(st.booleans()) and (leaves := ghosts(grove.tree)):
            grove.tree.forget(data.draw(st.sampled_from(leaves)))
        grove.check()
        _check_where_everything_is(grove, kept, pages)


def _check_where_everything_is(grove: Grove, kept: dict[str, object], pages: dict[str, object]) -> None:
    for letters, point in kept.items():
        match = grove.tree.match(text(letters))
        assert [found for found in match.points() if found.position == len(letters)] == [point]
        for stretch in match.stretches():
            for at in range(stretch.start, min(stretch.end, len(letters))):
                holder = pages.setdefault(letters[: at + 1], stretch.stored)
                assert holder is stretch.stored, "a position is held by the page that held it first"
        covered = {at for stretch in match.stretches() for at in range(stretch.start, stretch.end)}
        assert covered >= set(range(len(letters)))


# --- splitting and merging


def test_texts_that_part_share_what_comes_before() -> None:
    tree = tree_of("header one", "header two")
    assert shape(tree) == {"header ": "header ", "header one": "one", "header two": "two"}


def test_a_text_that_goes_on_at_a_leaf_makes_the_leaf_longer() -> None:
    tree = tree_of("turn one", "turn one, turn two")
    assert shape(tree) == {"turn one, turn two": "turn one, turn two"}


def test_a_page_that_spans_a_split_is_referred_to_from_both_sides_and_joined_again() -> None:
    grove = Grove()
    point = grove.keep("abcdef")
    grove.cover("abcdef", 0, 6)
    grove.match("abcxyz")
    upper, lower = (next(node for node in grove.tree.nodes() if whole(node) == name) for name in ("abc", "abcdef"))
    assert [(s.start, s.end) for s in upper.stretches + lower.stretches] == [(0, 3), (3, 6)]
    assert upper.stretches[0].stored is lower.stretches[0].stored
    assert upper.stretches[0].stored.references == 2
    grove.check()
    grove.tree.forget(next(node for node in grove.tree.nodes() if whole(node) == "abcxyz"))
    (node,) = grove.tree.nodes()
    assert [(s.start, s.end, s.stored.references) for s in node.stretches] == [(0, 6, 1)]
    assert node.points == [point]
    grove.check()


@pytest.mark.parametrize("position", [1, 2, 3, 4, 5])
def test_a_snapshot_at_a_split_belongs_to_the_upper_side(position: int) -> None:
    grove = Grove()
    point = grove.keep("abcdef"[:position])
    grove.match("abcdef")
    grove.match("abcxyz")
    assert whole(point.node) == ("abc" if position <= 3 else "abcdef")
    grove.check()


# --- liveness


def test_a_node_is_live_while_it_or_one_below_holds_data() -> None:
    grove = Grove()
    grove.match("header one")
    point = grove.keep("header two")
    sequence = {whole(node): node.is_live for node in grove.tree.nodes()}
    assert sequence == {"header ": True, "header one": False, "header two": True}
    grove.budget.drop(point)
    assert not any(node.is_live for node in grove.tree.nodes())
    grove.check()


def test_a_leaf_with_data_is_not_forgotten() -> None:
    grove = Grove()
    grove.keep("a")
    (node,) = grove.tree.nodes()
    with pytest.raises(AssertionError):
        grove.tree.forget(node)


def test_inserting_renews_the_whole_path() -> None:
    tree = tree_of("header one", "header two")
    tree.insert(text("header one"), 50.0)
    assert {whole(node): node.last_used for node in tree.nodes()} == {
        "header ": 50.0,
        "header one": 50.0,
        "header two": 1.0,
    }


# --- comparing


@given(LETTERS, LETTERS)
def test_common_prefix_counts_equal_tokens(left: str, right: str) -> None:
    expected = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), None)
    size = common_prefix(text(left), text(right))
    assert size == (min(len(left), len(right)) if expected is None else expected)


def test_tokens_that_share_bytes_but_differ_are_told_apart() -> None:
    tree = Tree()
    tree.insert(np.array([1, 256], np.int32), 0.0)
    assert tree.match(np.array([1, 257], np.int32)).length == 1
    assert tree.match(np.array([65536, 0], np.int32)).length == 0


def test_a_node_that_is_merged_with_one_that_leads_to_data_stays_alive() -> None:
    grove = Grove()
    grove.keep("xcd")
    grove.match("xce")
    (leaf,) = grove.match("xa").path[-1:]
    grove.check()
    grove.tree.forget(leaf)
    grove.check()
