"""Bytes are counted to the last one, shared pages once; the budget holds; eviction frees what it says."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.simulate.policies import POLICIES, LeastRecentlyUsed
from leftoff.cache.node import ResumePoint
from leftoff.cache.policy import Candidates, Column
from tests.cache.trees import Grove, text

TEXTS = st.text("ab", min_size=1, max_size=14)


# --- any history


@settings(max_examples=150)
@given(st.data(), st.sampled_from(sorted(POLICIES)), st.sampled_from([0, 150, 400, 1500]))
def test_the_count_is_right_and_the_budget_holds_whatever_happens(
    data: st.DataObject, policy: str, budget: int
) -> None:
    grove = Grove(budget, POLICIES[policy]())
    for letters in data.draw(st.lists(TEXTS, min_size=1, max_size=12)):
        size = len(letters)
        nbytes = data.draw(st.integers(0, 120))
        if nbytes and grove.budget.make_room(nbytes):
            grove.keep(letters, nbytes=nbytes)
        start, end = sorted((data.draw(st.integers(0, size)), data.draw(st.integers(0, size))))
        if start < end and grove.budget.make_room(10 * (end - start)):
            grove.cover(letters, start, end)
            if grove.budget.make_room(0):
                grove.mark(letters[:end])
        grove.check()


@given(st.lists(TEXTS, min_size=1, max_size=10), st.sampled_from([1, 3, 100]), st.booleans())
def test_everything_can_be_evicted(texts: list[str], page_tokens: int, has_snapshots: bool) -> None:
    grove = Grove()
    for letters in texts:
        for start in range(0, len(letters), page_tokens):
            end = min(len(letters), start + page_tokens)
            grove.cover(letters, start, end)
            if not has_snapshots:
                grove.mark(letters[:end])
        if has_snapshots:
            grove.keep(letters)
    grove.budget.capacity.nbytes = 0
    assert grove.budget.make_room(0), "nothing may be stuck"
    assert grove.budget.used_bytes == 0
    assert not any(node.holds_data for node in grove.tree.nodes())
    grove.check()


class Facts(LeastRecentlyUsed):
    """Keeps what it was last asked to rank."""

    def rank(self, candidates: Candidates) -> Column:
        self.seen = candidates
        return super().rank(candidates)


def built(history: Sequence[tuple[str, int, int, int]]) -> tuple[Grove, Facts, list[ResumePoint]]:
    """Each step keeps a point, covers a part of its path, or drops a point."""
    facts = Facts()
    grove, points = Grove(policy=facts), list[ResumePoint]()
    for letters, start, end, dropped in history:
        grove.cover(letters, min(start, end, len(letters) - 1), len(letters) if start >= end else end)
        point = grove.keep(letters)
        points += [point] if point not in points else []
        grove.budget.capacity.nbytes = grove.budget.used_bytes
        assert not grove.budget.make_room(1, spared=points), "all are priced, and none may go"
        if dropped < len(points) and len(points) > 2:
            grove.budget.drop(points.pop(dropped))
    return grove, facts, points


STEPS = st.tuples(st.text("ab", min_size=2, max_size=8), st.integers(0, 6), st.integers(1, 2), st.integers(0, 12))


@settings(max_examples=30)
@given(st.lists(STEPS, min_size=2, max_size=6))
def test_a_point_is_priced_by_what_its_eviction_frees(history: list[tuple[str, int, int, int]]) -> None:
    """However the tree has come about: prices are kept up to date step by step."""
    for index in range(len(built(history)[2])):
        grove, facts, points = built(history)
        used, point = grove.budget.used_bytes, points[index]
        grove.budget.capacity.nbytes = used
        assert grove.budget.make_room(1, spared=[each for each in points if each is not point])
        assert not grove.budget.holds(point)
        (price,) = facts.seen.nbytes.tolist()
        assert price == used - grove.budget.used_bytes


# --- shared pages


def test_a_page_that_two_branches_share_is_counted_once_and_goes_with_the_last() -> None:
    grove = Grove()
    first = grove.keep("header one")
    grove.cover("header one", 0, 10)
    second = grove.keep("header two")
    grove.cover("header two", 0, 10)  # of which only [7, 10) is not covered
    assert grove.budget.used_bytes == 2 * 100 + 100 + 100
    grove.budget.drop(first)
    grove.check()
    assert grove.budget.used_bytes == 100 + 100 + 100, "the header is still used, and so is the page it lies in"
    grove.budget.drop(second)
    assert grove.budget.used_bytes == 0
    grove.check()


def test_a_page_of_what_is_covered_already_costs_nothing() -> None:
    grove = Grove()
    grove.keep("abcd")
    grove.cover("abcd", 0, 4)
    used = grove.budget.used_bytes
    grove.cover("abcd", 1, 3)
    assert grove.budget.used_bytes == used


# --- what an eviction frees


def test_evicting_the_middle_frees_a_snapshot_only() -> None:
    grove = Grove()
    middle = grove.keep("abcd")
    grove.keep("abcdefgh")
    grove.cover("abcdefgh", 0, 8)
    used = grove.budget.used_bytes
    grove.budget.drop(middle)
    assert grove.budget.used_bytes == used - 100
    assert sum(s.end - s.start for s in grove.tree.match(text("abcdefgh")).stretches()) == 8
    grove.check()


def test_evicting_the_last_takes_the_pages_behind_the_one_before() -> None:
    grove = Grove()
    grove.keep("abcd")
    last = grove.keep("abcdefgh")
    for start in range(0, 8, 2):
        grove.cover("abcdefgh", start, start + 2)
    grove.budget.drop(last)
    assert grove.budget.used_bytes == 100 + 4 * 10
    assert [(s.start, s.end) for s in grove.tree.match(text("abcdefgh")).stretches()] == [(0, 2), (2, 4)]
    grove.check()


def test_a_page_that_reaches_past_the_entry_before_stays() -> None:
    grove = Grove()
    grove.keep("abcd")
    last = grove.keep("abcdefgh")
    grove.cover("abcdefgh", 0, 6)
    grove.cover("abcdefgh", 6, 8)
    grove.budget.drop(last)
    assert grove.budget.used_bytes == 100 + 60
    grove.check()


def test_evicting_the_last_of_a_branch_frees_it_up_to_where_another_branch_needs_it() -> None:
    grove = Grove()
    first = grove.keep("header one")
    grove.keep("header two")
    for letters in ("header one", "header two"):
        for start in range(10):
            grove.cover(letters, start, start + 1)
    grove.budget.drop(first)
    assert grove.budget.used_bytes == 100 + 10 * 10
    grove.check()


# --- who goes


def test_room_is_made_by_taking_out_what_was_not_used_for_longest() -> None:
    grove = Grove(300, LeastRecentlyUsed())
    oldest, second, third = grove.keep("a"), grove.keep("b"), grove.keep("c")
    grove.budget.hit(oldest)
    assert grove.budget.make_room(150)
    assert [point.row >= 0 for point in (oldest, second, third)] == [True, False, False]
    assert grove.budget.num_evictions == 2
    assert grove.budget.ranking.hits(oldest) == 1


def test_what_is_spared_stays() -> None:
    grove = Grove(200)
    first, second = grove.keep("a"), grove.keep("b")
    assert grove.budget.make_room(100, spared=[first])
    assert (first.row >= 0, second.row >= 0) == (True, False)
    assert not grove.budget.make_room(150, spared=[first])


def test_more_than_the_budget_evicts_nothing() -> None:
    grove = Grove(200)
    grove.keep("a")
    assert not grove.budget.make_room(201)
    assert grove.budget.num_points == 1


def test_an_evicted_position_is_remembered_as_lost() -> None:
    grove = Grove(100)
    point = grove.keep("abcd")
    grove.match("abcdef")
    assert grove.budget.make_room(50)
    assert point.row == -1
    assert grove.tree.match(text("abcdef")).path[0].lost_until == 4


# --- points


def test_an_entry_that_is_there_only_gains_what_it_lacks() -> None:
    grove = Grove()
    point = grove.mark("abcd")
    assert grove.budget.used_bytes == 0
    assert grove.keep("abcd") is point
    assert grove.keep("abcd", logits=np.zeros(5, np.float32)) is point
    assert grove.budget.used_bytes == 100 + 20
    assert grove.budget.num_points == 1
    grove.check()


@pytest.mark.parametrize("order", [("ab", "abcd", "abcdef"), ("abcdef", "abcd", "ab"), ("abcd", "abcdef", "ab")])
def test_entries_are_in_order_of_position_whenever_they_came(order: tuple[str, ...]) -> None:
    grove = Grove()
    for letters in order:
        grove.keep(letters)
    assert [point.position for point in grove.tree.match(text("abcdef")).points()] == [2, 4, 6]
    grove.check()


# --- copies of what is held elsewhere


def test_pages_are_given_up_from_the_end_as_far_as_is_needed_and_their_resume_point_stays() -> None:
    grove = Grove()
    point = grove.keep("header one")
    for start in range(0, 10, 2):
        grove.cover("header one", start, start + 2)
    grove.budget.capacity.nbytes = grove.budget.used_bytes
    grove.budget.drop_pages(grove.match("header one"), 30)
    assert [(stretch.start, stretch.end) for stretch in point.node.stretches] == [(0, 2), (2, 4), (4, 6)]
    assert grove.budget.holds(point)
    grove.check()


def test_what_another_branch_needs_is_not_given_up() -> None:
    grove = Grove()
    for letters in ("header one", "header two"):
        grove.keep(letters)
        grove.cover(letters, 0, 7)
        grove.cover(letters, 7, 10)
    grove.budget.capacity.nbytes = grove.budget.used_bytes
    grove.budget.drop_pages(grove.match("header one"), grove.budget.used_bytes)
    assert grove.match("header one").num_covered() == 7
    assert grove.match("header two").num_covered() == 10
    grove.check()


def test_what_a_pinned_entry_needs_is_not_given_up() -> None:
    grove = Grove()
    grove.budget.pin(grove.keep("header"))
    grove.keep("header one")
    for start in range(0, 10, 2):
        grove.cover("header one", start, start + 2)
    grove.budget.capacity.nbytes = grove.budget.used_bytes
    grove.budget.drop_pages(grove.match("header one"), grove.budget.used_bytes)
    assert grove.match("header one").num_covered() == 6
    grove.check()


def test_what_goes_on_beyond_the_path_is_not_given_up() -> None:
    grove = Grove()
    grove.keep("header one")
    grove.cover("header one", 0, 5)
    grove.cover("header one", 5, 10)
    grove.budget.capacity.nbytes = grove.budget.used_bytes
    grove.budget.drop_pages(grove.tree.match(text("header")), grove.budget.used_bytes)
    assert grove.match("header one").num_covered() == 5
    grove.check()


def test_what_was_not_used_for_two_hours_goes_first_and_copies_before_the_rest() -> None:
    grove = Grove(budget_bytes=400)
    old, recent = grove.keep("an old one"), grove.keep("a recent one")
    asked: list[int] = []
    grove.budget.shed = asked.append
    assert not grove.budget.evict_stale(300), "nothing is old yet"
    grove.budget.set_age(old, 8000)
    assert grove.budget.make_room(300)
    assert not asked, "the old one was enough"
    assert not grove.budget.holds(old)
    assert grove.budget.make_room(350)
    assert asked == [350]
    assert not grove.budget.holds(recent)


def test_room_is_short_when_only_what_was_used_lately_could_make_way() -> None:
    grove = Grove(budget_bytes=205)
    old = grove.keep("an old one")
    seen = [grove.budget.is_nearly_full]
    grove.keep("a recent one")
    seen.append(grove.budget.is_nearly_full)
    grove.budget.set_age(old, 8000)
    assert [*seen, grove.budget.is_nearly_full] == [False, True, False]


def test_pages_that_no_point_needs_yet_keep_their_nodes_alive() -> None:
    grove = Grove()
    grove.cover("abcdef", 0, 4)
    grove.check()
    grove.cover("abcxyz", 3, 6)
    grove.check()


def test_a_budget_is_nearly_full_when_less_than_a_tenth_is_free() -> None:
    grove = Grove(1000)
    grove.keep("a", nbytes=900)
    assert not grove.budget.is_nearly_full
    grove.keep("b", nbytes=1)
    assert grove.budget.is_nearly_full
