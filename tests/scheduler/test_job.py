"""The times of a job add up, whatever it came to."""

from leftoff.scheduler.job import Timings


def test_a_reply_has_waited_read_and_written() -> None:
    timings = Timings(submitted=10.0, started=12.0, first_token=15.0, finished=21.0)
    assert (timings.waited_ms, timings.prompt_ms, timings.first_token_ms) == (2000, 3000, 5000)
    assert timings.generation_ms == 6000


def test_one_that_never_started_has_only_waited() -> None:
    timings = Timings(submitted=10.0, finished=14.0)
    assert (timings.waited_ms, timings.prompt_ms, timings.first_token_ms) == (4000, 0, None)
    assert timings.generation_ms == 0


def test_one_that_ended_while_its_prompt_was_read_has_written_nothing() -> None:
    timings = Timings(submitted=10.0, started=11.0, finished=14.0)
    assert (timings.waited_ms, timings.prompt_ms, timings.first_token_ms) == (1000, 3000, None)
    assert timings.generation_ms == 0


def test_drafts_are_counted_by_where_they_come_from() -> None:
    timings = Timings()
    for source, num_drafted, num_accepted in (("reply", 5, 3), ("other", 4, 0), ("reply", 2, 2)):
        timings.saw_draft(source, num_drafted, num_accepted)
    assert (timings.num_drafted, timings.num_accepted) == (11, 5)
    assert timings.drafted_from == {"reply": 5, "other": 0}
