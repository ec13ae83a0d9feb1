"""A part that fails is told of once, and one that is back is not judged by calls from before."""

import pytest

from leftoff.store.breaker import Breaker, PartDownError
from tests.server.clock import Clock


def broken(clock: Clock) -> Breaker:
    return Breaker("the store", "nothing is fetched from it", lambda: clock.now)


def test_it_is_told_once_and_that_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    breaker = broken(clock)
    for _ in range(3):
        breaker.failed(TimeoutError())
    was_failing = breaker.is_failing
    clock.now = 5.0
    breaker.worked()
    breaker.worked()
    assert (was_failing, breaker.is_failing) == (True, False)
    assert [record.getMessage() for record in caplog.records] == [
        "the store fails (TimeoutError): nothing is fetched from it, until it is back",
        "the store is back after 5 s",
    ]


def test_who_asks_a_part_that_fails_is_told_which_it_is() -> None:
    breaker = broken(Clock())
    breaker.failed(TimeoutError())
    with pytest.raises(PartDownError, match="the store fails"):
        breaker.check()


def test_control_characters_do_not_get_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """redis-py quotes keys as they are, and those of replies are hashes."""
    broken(Clock()).failed(OSError("SET reply:\x1b[2J failed"))
    assert "(SET reply:[2J failed)" in caplog.text


def test_a_call_from_before_it_came_back_does_not_count() -> None:
    clock = Clock()
    breaker = broken(clock)
    breaker.failed(OSError())
    clock.now = 5.0
    breaker.worked()
    breaker.failed(TimeoutError(), began=4.0)
    was_failing = breaker.is_failing
    with pytest.raises(TimeoutError), breaker.watching(TimeoutError):
        raise TimeoutError
    assert (was_failing, breaker.is_failing) == (False, True)
