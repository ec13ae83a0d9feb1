"""Odds are learned by the length of the match, for one reply and for all."""

from leftoff.drafts.trail import Odds


def test_they_follow_what_is_seen() -> None:
    odds = Odds()
    for length in (4, 8, 16, 32, 64, 1000):
        for _ in range(100):
            odds.saw(length, is_right=True)
        assert odds.chance(length) > 0.95
    assert odds.chance(3) == Odds().chance(3)


def test_a_reply_begins_with_the_odds_of_all_and_adds_to_them() -> None:
    of_all = Odds()
    for _ in range(100):
        of_all.saw(5, is_right=False)
    one, other = Odds(of_all), Odds(of_all)
    assert one.chance(5) == of_all.chance(5) < 0.05
    one.saw(5, is_right=True)
    assert one.chance(5) == of_all.chance(5) > other.chance(5)
