"""The log finds the latest place that follows the longest match, whatever was added, forgotten or hashed alike."""

import numpy as np
import pytest

from leftoff.drafts.token_log import LONGEST_MATCH, ORDERS, TokenLog
from leftoff.types import Tokens


def tokens(*numbers: int) -> Tokens:
    return np.array(numbers, np.int32)


def naive(segments: list[Tokens], recent: list[int], order: int) -> list[int]:
    """The lengths of the matches of all places that follow the last `order` tokens."""
    found = []
    for segment in segments:
        for at in range(order, segment.size):
            if segment[at - order : at].tolist() == recent[-order:]:
                before = segment[:at].tolist()
                found.append(next((n for n in range(1, len(before) + 1) if before[-n:] != recent[-n:]), at + 1) - 1)
    return found


def test_what_follows_the_same_tokens_is_found() -> None:
    log = TokenLog(1000)
    log.add(tokens(1, 2, 3, 4, 5, 6), 0, 0)
    found = log.find([9, 2, 3, 4])
    assert found is not None
    assert (found.length, log.following(found.at, 10)) == (3, [5, 6])
    assert log.following(found.at, 1) == [5]
    assert log.find([9, 9, 3, 4]) is None, "two tokens are too few"
    assert log.find([4, 5, 6]) is None, "nothing follows the last token"


def test_of_equal_matches_the_latest_is_found() -> None:
    log = TokenLog(1000)
    log.add(tokens(1, 2, 3, 50, 60), 0, 0)
    log.add(tokens(1, 2, 3, 51, 61), 0, 0)
    found = log.find([1, 2, 3])
    assert found is not None
    assert log.following(found.at, 9) == [51, 61]


def test_a_longer_match_is_preferred_to_a_later_one() -> None:
    log = TokenLog(1000)
    long = list(range(100, 120))
    log.add(tokens(*long, 7, 8), 0, 0)
    log.add(tokens(1, *long[-3:], 9, 9), 0, 0)
    found = log.find(long)
    assert found is not None
    assert (found.length, log.following(found.at, 2)) == (20, [7, 8])


def test_what_follows_ends_with_its_segment() -> None:
    log = TokenLog(1000)
    log.add(tokens(1, 2, 3, 4, 5), 0, 0)
    log.add(tokens(6, 7, 8), 40, 3)
    found = log.find([1, 2, 3])
    assert found is not None
    assert log.following(found.at, 10) == [4, 5]
    assert log.segment(5).position == 40


@pytest.mark.parametrize("seed", range(5))
def test_it_agrees_with_a_search_of_everything(seed: int) -> None:
    """Few different tokens, so that there are many matches; the log grows and never forgets."""
    rng = np.random.default_rng(seed)
    log, segments, num_missed = TokenLog(1 << 16), [], 0
    for _ in range(40):
        segment = rng.integers(0, 5, rng.integers(2, 400)).astype(np.int32)
        segments.append(segment)
        log.add(segment, 0, 0)
        recent = rng.integers(0, 5, 80).tolist() if rng.random() < 0.5 else segment[: rng.integers(2, 60)].tolist()
        found = log.find(recent[-LONGEST_MATCH:])
        matches = [min(length, LONGEST_MATCH) for length in naive(segments, recent, ORDERS[0])]
        assert found is None or found.length in matches
        num_missed += found is None and bool(matches)
        num_missed += found is not None and found.length < ORDERS[-1] and bool(naive(segments, recent, ORDERS[-1]))
    assert num_missed <= 2, "a match is missed only if another has the same hash"


def test_it_is_bounded_and_forgets_the_oldest() -> None:
    log = TokenLog(1000)
    for first in range(0, 10_000, 100):
        log.add(np.arange(first, first + 100, dtype=np.int32), 0, 0)
        assert log.nbytes <= 4 * 1000 + 2 * 4 * 2048
    assert log.find([5, 6, 7]) is None
    found = log.find([9950, 9951, 9952])
    assert found is not None
    assert log.following(found.at, 2) == [9953, 9954]
    log.add(np.arange(5000, dtype=np.int32), 0, 0)  # more than all of it: the end is kept
    assert log.nbytes <= 4 * 1000 + 2 * 4 * 2048
    assert log.find([4990, 4991, 4992]) is not None


def test_a_full_log_takes_half_of_what_it_holds_at_once() -> None:
    log = TokenLog(1000)
    for first in range(0, 1000, 100):
        log.add(np.arange(first, first + 100, dtype=np.int32), 0, 0)
    log.add(np.arange(5000, 5500, dtype=np.int32), 0, 0)
    for recent, following in (([5000, 5001, 5002], 5003), ([5490, 5491, 5492], 5493), ([950, 951, 952], 953)):
        found = log.find(recent)
        assert found is not None
        assert log.following(found.at, 1) == [following]


def test_of_a_piece_that_is_too_long_the_end_keeps_its_place_in_the_sequence() -> None:
    log = TokenLog(16)
    log.add(tokens(*range(100, 120)), 40, 0)
    found = log.find([114, 115, 116])
    assert found is not None
    segment = log.segment(found.at)
    assert segment.position + found.at - segment.start == 57
