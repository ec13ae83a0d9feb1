"""For all tests: no disk and no drafts unless the test is about them, clients wait, and no log line is lost."""

import asyncio
import functools
import gc
import logging
import os
import signal
import ssl
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from types import SimpleNamespace

import hypothesis
import pytest
import uvicorn.server
from httpx._config import DEFAULT_TIMEOUT_CONFIG

import leftoff.host.build
from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.measure import Rates, measure_at_load
from tests.patience import PATIENCE_S

gc.disable()  # until all tests are collected: see `pytest_collection`

pytest_plugins = ("tests.server.fixtures",)

# Else a server that deletes its cache deletes that of who runs the tests, and is in the way of one of another worker.
_caches = tempfile.TemporaryDirectory()
os.environ["XDG_CACHE_HOME"] = _caches.name

os.environ["LEFTOFF_DISK"] = "0"
os.environ["LEFTOFF_DRAFT"] = "off"  # whether drafts pay depends on the machine
os.environ["XDG_DATA_HOME"] = os.devnull  # engines that were installed here are not what is tested
os.environ["XDG_CONFIG_HOME"] = os.devnull  # nor are the settings of who runs the tests

# Else threads that wait for each other keep the cores busy on which other tests run: with two threads and two workers,
# the same work takes eight times as long.
os.environ["OMP_WAIT_POLICY"] = "passive"

# Else, where gdb is there, it looks for two seconds at every process that llama.cpp ends.
os.environ["GGML_NO_BACKTRACE"] = "1"

# Else, where it is set, every server and command that the tests start compiles leftoff again, for half a second.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Else httpx gives up after five seconds, and whether a test passes is a matter of what else the machine does.
vars(DEFAULT_TIMEOUT_CONFIG).update(dict.fromkeys(("connect", "read", "write", "pool"), PATIENCE_S))

# Else every client of the tests reads the certificates of all authorities, for 50 ms, and then speaks plain HTTP.
vars(ssl)["create_default_context"] = functools.cache(ssl.create_default_context)


async def _tick(_: float) -> None:
    await asyncio.sleep(0.01)


# Else a server ends at the second or third tick of uvicorn, and looks at its connections at every tick: of 100 ms each.
vars(uvicorn.server)["asyncio"] = SimpleNamespace(**vars(asyncio) | {"sleep": _tick})

# Else hypothesis fails an example that takes longer than 200 ms.
hypothesis.settings.register_profile("leftoff", deadline=None)
hypothesis.settings.load_profile("leftoff")


@pytest.fixture(scope="session", autouse=True)
def _measured_once() -> Iterator[None]:
    """To measure a small model takes half of the time in which its host opens: each worker measures it once."""
    kept: dict[tuple[Path, ContextSettings], Rates] = {}

    def measured(engine: LlamaEngine) -> Rates:
        key = engine.model.path, engine.settings
        if key not in kept:
            kept[key] = measure_at_load(engine)
        return kept[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leftoff.host.build, "measure_at_load", measured)
        yield


@pytest.fixture(autouse=True)
def _no_line_is_lost() -> Iterator[None]:
    """Python only prints what goes wrong while logging, such as a stream that was closed. Here it fails the test."""
    lost: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging.Handler, "handleError", lambda _handler, record: lost.append(record.getMessage()))
        yield
    assert not lost, "lines that the log could not write"


def pytest_sessionstart() -> None:
    """A shell has what it runs in the background ignore interrupts, and nohup a closed terminal.

    What the tests start would inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_unconfigure() -> None:
    _caches.cleanup()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The garbage collector need not look at thousands of tests and all modules again and again."""
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
