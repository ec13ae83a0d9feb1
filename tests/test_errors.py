"""What is said of an error."""

import pytest

from leftoff.errors import reason_of


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("it is odd"), "it is odd"),
        (FileNotFoundError(2, "No such file or directory", "a.gguf"), "No such file or directory"),
        (OSError("the disk is full"), "the disk is full"),
        (ValueError("[Errno 111] Connection refused"), "Connection refused"),
        (TimeoutError(), "TimeoutError"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_the_reason_is_an_errors_words_or_else_its_type(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason
