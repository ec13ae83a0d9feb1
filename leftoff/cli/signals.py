"""How a command ends when somebody ends it: everything is closed, and the exit code says which signal it was."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], None]

INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM


@contextmanager
def ended_by_signals(code: int = TERMINATED) -> Iterator[None]:
    """SIGTERM ends the command as Ctrl-C does: by an exception."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(code)

    with handled_by(end, signal.SIGTERM):
        yield


@contextmanager
def handled_by(handler: Handler, *numbers: signal.Signals) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
