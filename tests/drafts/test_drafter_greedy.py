"""Greedy replies of the embedded model with drafts are those without."""

from leftoff.hub import default_model
from tests.drafts.greedy import compare


def test_greedy_replies_are_the_same() -> None:
    tally = compare(default_model(), 3, reply_tokens=50)
    assert tally.num_accepted > 5, "how many depends on the texts, which are the documents of this repository"
    assert tally.is_right, tally
