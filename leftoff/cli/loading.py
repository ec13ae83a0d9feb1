"""From a setting to a running service: finds the model, loads it with a progress bar, and sets up the log."""

import asyncio
import dataclasses
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console

from leftoff.chat.template.render import ChatTemplate, TemplateError
from leftoff.cli.progress import show_stages
from leftoff.cli.signals import handled_by
from leftoff.cli.units import one_line
from leftoff.config import SettingError, Settings
from leftoff.hub import default_model, find_model
from leftoff.server.service import Service

Leave = Callable[[int], None]


def load_service(console: Console, settings: Settings, leave: Leave = os._exit) -> Service:
    """A signal that comes meanwhile ends the process at once, with `leave`."""
    _check_template(settings.chat_template_file)
    path = find_model(settings.model) if settings.model else default_model()
    with show_stages(console, visible=console.is_terminal) as stages, _ends_at_once(console, leave):
        progress = stages.begin(f"loading {path.name}")
        try:
            return Service(dataclasses.replace(settings, model=str(path)), progress=progress)
        except TemplateError as error:
            raise SettingError(f"{path}: {error}. Give another template with --chat-template-file FILE") from error


def _check_template(name: str) -> None:
    """Loading may take minutes: what would fail after it should fail before."""
    try:
        if name:
            ChatTemplate(Path(name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, TemplateError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        raise SettingError(f"--chat-template-file {name}: {reason}. Give a file with a Jinja template") from error


@contextmanager
def logging_to_stderr(level: str) -> Iterator[None]:
    """The server's lines, one per request, with their time; and what the HTTP library has to complain about.

    Until the command ends: a program that runs it and goes on may close this stderr, and would log to a closed file.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine("%(asctime)s %(message)s", "%H:%M:%S"))
    handler.addFilter(_is_no_cancelled_reply)
    if level != "debug":
        quiet_logs()
    with _logged_by(handler, "leftoff", level.upper()), _logged_by(handler, "uvicorn.error", "WARNING"):
        yield


@contextmanager
def _logged_by(handler: logging.Handler, name: str, level: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    before = logger.handlers[:], logger.level
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.handlers[:] = before[0]
        logger.setLevel(before[1])


class _OneLine(logging.Formatter):
    """What a client or a model's file says cannot write a second line into the log, or move a terminal's cursor."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = one_line(record.message)
        return super().formatMessage(record)


def _is_no_cancelled_reply(record: logging.LogRecord) -> bool:
    """Replies that are still running when the server stops are cancelled: no reason for a traceback each."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def quiet_logs() -> None:
    """llama.cpp complains of much that is as it should be; what does go wrong comes as an error of ours."""
    logging.getLogger("leftoff.llama").setLevel(logging.CRITICAL)


@contextmanager
def _ends_at_once(console: Console, leave: Leave) -> Iterator[None]:
    """While llama.cpp loads, an exception would be lost in its callbacks, and there is nothing to be saved."""

    def end(number: int, _frame: FrameType | None) -> None:
        console.show_cursor()  # the progress bar hides it
        console.file.flush()
        leave(128 + number)

    with handled_by(end, signal.SIGINT, signal.SIGTERM):
        yield
