"""A flood of refused requests leaves few lines, and those say how many were left out."""

from leftoff.server.http.line_rate import LineRate


def test_a_flood_leaves_few_lines_and_the_next_one_counts_the_rest() -> None:
    now = 0.0
    rate = LineRate(lambda: now)
    assert [rate.take() for _ in range(1000)] == [0] * 20 + [None] * 980
    now = 5.0
    assert [rate.take(), rate.take()] == [980, None]
    now = 86_400.0
    assert [rate.take() for _ in range(21)] == [1, *[0] * 19, None]


def test_one_who_floods_does_not_silence_another() -> None:
    rate = LineRate(lambda: 0.0)
    assert None in [rate.take("one") for _ in range(30)]
    assert rate.take("two") == rate.take(None) == 0
