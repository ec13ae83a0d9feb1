"""Work that needs a model that is awake, and no slot: in order, failed in words, or given up."""

import pytest

from leftoff.scheduler.errand import Errands
from leftoff.scheduler.job import QueueFullError


def test_errands_run_in_the_order_in_which_they_came() -> None:
    notified: list[None] = []
    errands = Errands(2, lambda: notified.append(None))
    assert not errands
    assert not errands.run_one()
    done: list[int] = []
    futures = [errands.add(lambda number=number: done.append(number)) for number in (1, 2)]  # type: ignore[misc]
    assert len(notified) == 2
    with pytest.raises(QueueFullError, match="2 requests are waiting already"):
        errands.add(lambda: None)
    assert errands
    assert [errands.run_one(), errands.run_one(), errands.run_one()] == [True, True, False]
    assert done == [1, 2]
    assert all(future.done() for future in futures)


def test_an_error_is_for_who_waits() -> None:
    def fail() -> None:
        raise MemoryError("no room")

    errands = Errands(2, lambda: None)
    future = errands.add(fail)
    errands.run_one()
    with pytest.raises(MemoryError, match="no room"):
        future.result()
    future = errands.add(lambda: None)
    errands.fail(OSError("the file is gone"))
    with pytest.raises(OSError, match="the file is gone"):
        future.result()
    assert not errands


def test_nothing_is_done_that_nobody_waits_for() -> None:
    done: list[None] = []
    errands = Errands(3, lambda: None)
    errands.add(lambda: done.append(None)).cancel()
    assert not errands
    assert errands.run_one()
    future = errands.add(lambda: done.append(None))
    errands.close()
    assert future.cancelled()
    assert errands.add(lambda: done.append(None)).cancelled()
    assert not done
