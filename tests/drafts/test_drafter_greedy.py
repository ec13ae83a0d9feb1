"""Greedy replies with drafts are those without, whatever drafts."""

import pytest

from tests.drafts.greedy import compare
from tests.drafts.sources import SOURCES
from tests.factory import MTP, model_path


@pytest.mark.parametrize("source", SOURCES)
def test_greedy_replies_are_the_same(source: str) -> None:
    tally = compare(model_path(MTP), 3, reply_tokens=50, source=source)
    assert tally.num_accepted > 5, "how many depends on the texts, which are the documents of this repository"
    assert tally.is_right, tally
