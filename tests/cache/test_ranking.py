"""The columns follow the points, rows are reused, and the lowest is the policy's lowest."""

from hypothesis import given
from hypothesis import strategies as st

from lab.simulate.policies import GreedyDual, LeastRecentlyUsed
from leftoff.cache.node import Node, ResumePoint
from leftoff.cache.ranking import Ranking

NODE = Node(None, 0, b"")


def point(position: int = 1) -> ResumePoint:
    return ResumePoint(NODE, position)


def ranking_of(*used: float) -> tuple[Ranking, list[ResumePoint]]:
    """Entries of one byte each, used at these times."""
    ranking, points = Ranking(LeastRecentlyUsed()), []
    for now in used:
        points.append(point())
        ranking.add(points[-1], now)
        ranking.describe(points[-1], saves=1, nbytes=1)
    return ranking, points


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=600, unique=True))
def test_entries_go_in_the_order_of_their_last_use(used: list[float]) -> None:
    ranking, points = ranking_of(*used)
    for _ in used:
        oldest = ranking.choose_victim(1e6, ())
        assert oldest is not None
        assert ranking.last_used(oldest) == min(ranking.last_used(left) for left in points)
        points.remove(oldest)
        ranking.remove(oldest)
    assert ranking.choose_victim(1e6, ()) is None
    assert len(ranking) == 0


def test_a_hit_counts_and_renews() -> None:
    ranking, (first, second) = ranking_of(1.0, 2.0)
    ranking.hit(first, 3.0)
    assert ranking.choose_victim(4.0, ()) is second
    assert (ranking.hits(first), ranking.hits(second)) == (1, 0)
    assert ranking.last_used(first) == 3.0


def test_what_frees_nothing_is_never_chosen() -> None:
    ranking, (first, second) = ranking_of(1.0, 2.0)
    ranking.describe(first, saves=1, nbytes=0)
    assert ranking.choose_victim(3.0, ()) is second
    ranking.describe(second, saves=1, nbytes=0)
    assert ranking.choose_victim(3.0, ()) is None


def test_what_is_spared_is_not_chosen() -> None:
    ranking, (first, second) = ranking_of(1.0, 2.0)
    assert ranking.choose_victim(3.0, [first]) is second
    assert ranking.choose_victim(3.0, [first, second]) is None


def test_a_reused_row_remembers_nothing() -> None:
    ranking, (first,) = ranking_of(1.0)
    ranking.hit(first, 2.0)
    row = first.row
    ranking.remove(first)
    assert first.row == -1
    second = point()
    ranking.add(second, 5.0)
    assert (second.row, ranking.hits(second), ranking.last_used(second), len(ranking)) == (row, 0, 5.0, 1)
    assert ranking.choose_victim(6.0, ()) is None, "its bytes are not known yet"


def test_an_eviction_raises_the_level_at_which_later_entries_begin() -> None:
    policy = GreedyDual()
    ranking = Ranking(policy)
    cheap, dear, late = point(), point(), point()
    for each, saves in ((cheap, 5), (dear, 8)):
        ranking.add(each, 0.0)
        ranking.describe(each, saves, nbytes=1)
    assert ranking.choose_victim(1.0, ()) is cheap
    ranking.remove(cheap)
    ranking.add(late, 1.0)
    ranking.describe(late, saves=4, nbytes=1)
    assert policy.level == 5.0
    assert ranking.choose_victim(2.0, ()) is dear, "8 from the old level, 4 from the new one"
