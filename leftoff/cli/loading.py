"""Opens a model host for a command: finds the model, loads it with a progress bar, and sets up logging."""

import asyncio
import dataclasses
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from leftoff.chat.template.render import ChatTemplate, TemplateError
from leftoff.cli.progress import show_stages
from leftoff.cli.signals import handled_by
from leftoff.cli.units import one_line
from leftoff.config import MIB, Settings
from leftoff.engine.binding.library import Library
from leftoff.engine.hardware import unused_gpu, unused_instructions
from leftoff.host.build import Fitted, open_host
from leftoff.host.fleet import Fleet
from leftoff.host.host import ModelHost
from leftoff.host.request_log import RequestLog
from leftoff.hub import default_model, find_model
from leftoff.hub_files import Begin, download_file
from leftoff.scheduler.gate import Gate
from leftoff.server.http.line_rate import LineRate
from leftoff.setting import SettingError

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
        with show_stages(console, visible=console.is_terminal) as stages:
            settings = with_files(settings, stages.begin)
    path = Path(settings.model)
