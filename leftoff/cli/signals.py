"""Signal handlers of the commands: a signal closes everything, and the exit code tells which one it was."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], None]

INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM


@contextmanager
def ended_by_signals(code: int = TERMINATED) -> Iterator[None]:
    """Makes SIGTERM end the command as Ctrl-C does: by an exception, so that everything is closed.

    A terminal that is closed sends SIGHUP, which ends it alike, by what handles SIGTERM then; not so under nohup.
    """

    def end(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(code)

    def hang_up(_number: int, _frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGTERM)

    hangups = () if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else (signal.SIGHUP,)
    with handled_by(end, signal.SIGTERM), handled_by(hang_up, *hangups):
        yield


@contextmanager
def handled_by(handler: Handler, *numbers: signal.Signals) -> Iterator[None]:
    """Installs a handler, and restores the earlier ones at the end. Only the main thread can: others change nothing."""
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handler) for number in numbers if is_main}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
