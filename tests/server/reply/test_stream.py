"""What is logged of a prompt that takes long."""

import logging

import pytest

from leftoff.server.reply.stream import ReadingLog


def test_a_prompt_that_takes_long_tells_how_far_it_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "leftoff.requests")
    times = iter((0.0, 5.0, 12.0, 15.0, 32.0, 400.0))
    reading = ReadingLog(31_336, 26, times.__next__)
    for num_read in (500, 1226, 1500, 2226, 31_336):
        reading.saw(num_read)
    assert caplog.messages == [
        "reading 1,226 of 31,336 tokens · 100 tokens/s · 0:05:01 left",
        "reading 2,226 of 31,336 tokens · 50 tokens/s · 0:09:42 left",
    ]


def test_a_prompt_that_begins_anew_is_not_read_backwards(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "leftoff.requests")
    times = iter((0.0, 10.0, 20.0, 30.0))
    reading = ReadingLog(1000, 0, times.__next__)
    for num_read in (500, 300, 400):
        reading.saw(num_read)
    assert [line.split(" · ")[0] for line in caplog.messages] == [
        "reading 500 of 1,000 tokens",
        "reading 400 of 1,000 tokens",
    ]
