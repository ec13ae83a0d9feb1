"""Opens a model host for a command: finds the model, loads it with a progress bar, and sets up logging."""

import asyncio
import dataclasses
import json
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from leftoff.chat.template.render import ChatTemplate, TemplateError
from leftoff.cli.extras import importing
from leftoff.cli.progress import show_stages
from leftoff.cli.signals import handled_by
from leftoff.config import MIB, Settings
from leftoff.engine.binding.library import Library
from leftoff.engine.hardware import unused_gpu, unused_instructions
from leftoff.errors import reason_of
from leftoff.host.build import Fitted, open_host
from leftoff.host.fleet import Fleet
from leftoff.host.host import ModelHost
from leftoff.host.request_log import RequestLog, Watcher
from leftoff.hub.files import Begin, silent
from leftoff.hub.reference import default_model, find_model
from leftoff.scheduler.gate import Gate
from leftoff.server.http.line_rate import LineRate
from leftoff.setting import SettingError
from leftoff.units import one_line

Leave = Callable[[int], None]


def load_host(
    console: Console,
    settings: Settings,
    leave: Leave = os._exit,
    sampling: dict[str, Any] | None = None,
    log: RequestLog | None = None,
    fit: Fitted | None = None,
    gate: Gate | None = None,
) -> ModelHost:
    """Loads the model. A signal during that ends the process at once, by `leave`. `sampling` are its new defaults.

    With `fit`, what is chosen for the settings is known already.
    """
    _check_template(settings.chat_template_file)
    if fit is None:
        with show_stages(console, visible=console.is_terminal) as begin:
            settings = with_files(settings, begin)
    path = Path(settings.model)
    with show_stages(console, visible=console.is_terminal) as begin, ends_at_once(console, leave):
        progress = begin(f"loading {path.name}")
        try:
            return open_host(
                fit or settings,
                fleet=open_fleet(settings),
                log=log,
                sampling=sampling,
                progress=progress,
                gate=gate,
            )
        except TemplateError as error:
            raise SettingError(f"{path}: {error}. Give another template with --chat-template-file FILE") from error


def with_files(settings: Settings, begin: Begin = silent) -> Settings:
    """The settings with the files of the models that are wanted, fetched if need be; `begin` shows how far that is."""
    path = find_model(settings.model, begin) if settings.model else default_model()
    draft = str(find_model(settings.model_draft, begin)) if settings.model_draft else ""
    return dataclasses.replace(settings, model=str(path), model_draft=draft)


def open_fleet(settings: Settings) -> Fleet | None:
    """The fleet of `--index`, not joined yet. What it takes is imported here and nowhere else."""
    if not settings.index:
        if settings.store:
            raise SettingError(f"--store {settings.store}: it takes --index too, such as redis://host:6379/0")
        return None
    with importing("cluster", "--index"):
        from leftoff.cluster.member import FleetMember  # noqa: PLC0415
        from leftoff.store.fleet_key import read_fleet_key  # noqa: PLC0415
    return FleetMember(
        settings.store,
        settings.index,
        budget_bytes=settings.store_budget * MIB,
        days=settings.store_days,
        key=read_fleet_key(settings.fleet_key),
    )


@contextmanager
def traced(url: str) -> Iterator[list[Watcher]]:
    """Watchers of a request log that send spans to the collector at this URL; without one, none, and no import."""
    if not url:
        yield []
        return
    with importing("otel", "--otel"):
        from leftoff.host.traces import Traces  # noqa: PLC0415
    with closing(Traces.to(url)) as traces:
        yield [traces.add]


def hint_at_engine(console: Console, library: Library) -> None:
    """Prints one line if there is an engine that would use a GPU, or more of the processor."""
    hint = unused_gpu(library) or unused_instructions(library.system_info)
    if hint:
        console.print(hint)


def _check_template(name: str) -> None:
    """Fails before the model is loaded, which may take minutes, rather than after."""
    try:
        if name:
            ChatTemplate(Path(name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, TemplateError) as error:
        problem = f"--chat-template-file {name}: {reason_of(error)}"
        raise SettingError(f"{problem}. Give a file with a Jinja template") from error


@contextmanager
def logging_to_stderr(level: str, log_format: str = "text") -> Iterator[None]:
    """Logs the server's lines, one per request, and warnings of the HTTP library.

    The handlers are removed at the end: a program that runs the command may close this stderr and log on.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLine() if log_format == "json" else _OneLine("%(asctime)s %(message)s", "%H:%M:%S"))
    handler.addFilter(_is_no_cancelled_reply)
    handler.addFilter(partial(_is_within, LineRate()))
    if level != "debug":
        quiet_logs()
    with (
        _logged_by(handler, "leftoff", level.upper()),
        _logged_by(handler, "uvicorn.error", "WARNING"),
        _logged_by(handler, "opentelemetry", "ERROR"),
    ):
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
    """Keeps each message on one line and without control characters: it may hold text of clients or model files."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = one_line(record.message)
        return super().formatMessage(record)


class _JsonLine(logging.Formatter):
    """Makes each message an object on a line, with the fields of the request that it is about."""

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


def _is_no_cancelled_reply(record: logging.LogRecord) -> bool:
    """Filters out the tracebacks of replies that are cancelled when the server stops."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def _is_within(rate: LineRate, record: logging.LogRecord) -> bool:
    """Filters out most of a flood of lines by the HTTP library: it writes one for each request that is no HTTP."""
    return record.name != "uvicorn.error" or rate.take() is not None


def quiet_logs() -> None:
    """Hides llama.cpp's warnings, most of which are harmless. Its errors are raised as exceptions anyway."""
    logging.getLogger("leftoff.llama").setLevel(logging.CRITICAL)


@contextmanager
def ends_at_once(console: Console, leave: Leave) -> Iterator[None]:
    """Ends the process on a signal: while llama.cpp loads, its callbacks would swallow an exception.

    Signals come to the main thread: where it waits for another one that loads, this is to be called there.
    """

    def end(number: int, _frame: FrameType | None) -> None:
        console.show_cursor()  # the progress bar hides it
        console.file.flush()
        leave(128 + number)

    with handled_by(end, signal.SIGINT, signal.SIGTERM):
        yield
