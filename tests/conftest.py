"""For all tests: servers keep nothing on disk, unless the test is about that, and no line of a log is lost."""

import logging
import os
from collections.abc import Iterator

import pytest

os.environ["LEFTOFF_DISK"] = "0"


@pytest.fixture(autouse=True)
def _every_line_is_logged(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Python only prints what goes wrong while logging, such as a stream that was closed. Here it fails the test."""
    lost: list[str] = []
    monkeypatch.setattr(logging.Handler, "handleError", lambda _handler, record: lost.append(record.getMessage()))
    yield
    assert not lost, "lines that the log could not write"
