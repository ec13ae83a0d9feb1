"""Times of batches: on lines between what was measured, and then as they are seen."""

import pytest

from leftoff.drafts.batch_times import BatchTimes


def test_times_are_learned() -> None:
    times = BatchTimes({1: 0.010, 8: 0.020})
    assert times.multiples[1] == 1.0
    assert times.multiples[8] == pytest.approx(2.0)
    assert 1.0 < times.multiples[4] < 2.0
    assert times.multiples[16] > times.multiples[8]
    assert times.best_gain() > 4
    for _ in range(100):
        times.saw(1, 10.0)
        times.saw(8, 40.0)
    assert times.multiples[8] == pytest.approx(4.0, rel=0.1)
    times.saw(8, 4000.0)  # the machine slept
    assert times.multiples[8] == pytest.approx(4.0, rel=0.1)
    only_one = BatchTimes({1: 0.5})
    assert only_one.multiples[3] == pytest.approx(3.0)
    assert only_one.best_gain() == pytest.approx(1.0)


def test_each_size_lies_on_the_line_between_its_neighbours() -> None:
    times = BatchTimes({1: 0.010, 9: 0.018, 29: 0.118, 49: 0.158})
    assert times.multiples[5] == pytest.approx(1.4)
    assert times.multiples[19] == pytest.approx(6.8)
    assert times.multiples[39] == pytest.approx(13.8)
    assert times.multiples[59] == pytest.approx(17.8), "beyond, on the last line"


def test_sizes_that_were_never_seen_move_along() -> None:
    times = BatchTimes({1: 0.010, 2: 0.020, 8: 0.026})
    times.saw(8, 26.0)
    for _ in range(200):
        times.saw(1, 10.0)
        times.saw(2, 11.0)
    assert times.multiples[2] == pytest.approx(1.1, rel=0.05)
    assert times.multiples[4] == pytest.approx(1.3, rel=0.1)
    assert times.multiples[8] == pytest.approx(2.6, rel=0.05), "it was seen"


def test_a_draft_alone_pays_for_the_change() -> None:
    """On a GPU the two steps after it are slow: they tell nothing of a single token."""
    times = BatchTimes({1: 0.010, 8: 0.011}, change_s=0.008)
    assert times.change_now == times.change == pytest.approx(0.8)
    times.saw(8, 11.0)
    assert times.change_now == 0
    for ms in (14.0, 14.0, 10.0):
        times.saw(1, ms)
    assert times.change_now == pytest.approx(0.8)
    assert times.ms == pytest.approx(10.0)


def test_at_first_the_quickest_count() -> None:
    """The first batches of a size are slow on a GPU."""
    times = BatchTimes({1: 0.010, 8: 0.020})
    for ms in (11.0, 20.0, 20.0):
        times.saw(8, ms)
    assert times.multiples[8] < 1.7


def test_no_batch_is_quicker_than_a_single_token() -> None:
    """The machine was busy while that was measured."""
    assert set(BatchTimes({1: 0.040, 2: 0.025, 8: 0.030, 64: 0.040}).multiples[1:]) == {1.0}
