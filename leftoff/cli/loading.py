"""From a setting to a running service: finds the model, loads it with a progress bar, and sets up the log."""

import asyncio
import dataclasses
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console

from leftoff.api.service import Service
from leftoff.cli.stages import show_stages
from leftoff.config import Settings
from leftoff.hub import default_model, find_model

Handler = Callable[[int, FrameType | None], None]

EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 0}


def load_service(console: Console, settings: Settings) -> Service:
    path = find_model(settings.model) if settings.model else default_model()
    with show_stages(console, visible=console.is_terminal) as stages, _ends_at_once(console):
        progress = stages.begin(f"loading {path.name}")
        return Service(dataclasses.replace(settings, model=str(path)), progress=progress)


def log_to_stderr(level: str) -> None:
    """The server's lines, one per request, with their time; and what the HTTP library has to complain about."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    for name, lowest in (("leftoff", level.upper()), ("uvicorn.error", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(lowest)
    logging.getLogger("uvicorn.error").addFilter(_is_no_cancelled_reply)
    if level != "debug":
        quiet_logs()


def _is_no_cancelled_reply(record: logging.LogRecord) -> bool:
    """Replies that are still running when the server stops are cancelled: no reason for a traceback each."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def quiet_logs() -> None:
    """llama.cpp complains of much that is as it should be; what does go wrong comes as an error of ours."""
    logging.getLogger("leftoff.llama").setLevel(logging.CRITICAL)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM ends the command as Ctrl-C does: everything is closed, and the exit code says which it was."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(EXIT_CODES[signal.Signals(number)])

    with _handled_by(end, signal.SIGTERM):
        yield


@contextmanager
def _ends_at_once(console: Console) -> Iterator[None]:
    """While llama.cpp loads, an exception would be lost in its callbacks, and there is nothing to be saved."""

    def end(number: int, _frame: FrameType | None) -> None:
        console.show_cursor()  # the progress bar hides it
        console.file.flush()
        os._exit(EXIT_CODES[signal.Signals(number)])

    with _handled_by(end, *EXIT_CODES):
        yield


@contextmanager
def _handled_by(handler: Handler, *numbers: signal.Signals) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
