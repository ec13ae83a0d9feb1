"""A server as a process of its own: started, asked where it listens, measured, stopped."""

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import httpx

from lab.bench.errors import BenchError
from leftoff.config import definitions

_URL = re.compile(r"http://[\d.]+:\d+")
_STOP_S = 60
_READY_S = 300
_POLL_S = 0.02


class Process:
    """A process that says its address on its standard output, unless `url` is known before, and ends on SIGTERM."""

    def __init__(self, command: Sequence[str], url: str = "") -> None:
        self._command = [*command]
        self._known_url = url
        self._errors: IO[str] = TemporaryFile("w+")  # noqa: SIM115
        self._peak_bytes = 0
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=self._errors if self._known_url else subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.url = self._known_url or self._listening_url()
        self._wait_until_ready()

    def stop(self) -> None:
        """As a service manager does it."""
        if self._process.poll() is None:
            self._peak_bytes = max(self._peak_bytes, peak_bytes(self._process.pid) or 0)
            self._process.terminate()
            self._wait_for_the_end()
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                stream.close() if stream else None

    def kill(self) -> None:
        """As a loss of power does it."""
        self._process.kill()
        self._process.wait()
        self.stop()

    def close(self) -> None:
        self.stop()
        self._errors.close()

    def log_tail(self, num_lines: int) -> list[str]:
        """The last lines that it logged."""
        self._errors.seek(0)
        return self._errors.read().strip().splitlines()[-num_lines:]

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def peak_bytes(self) -> int | None:
        """The most memory that was resident at once, over all starts so far; None where the system does not tell."""
        return max(self._peak_bytes, peak_bytes(self._process.pid) or 0) or None

    def _wait_for_the_end(self) -> None:
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _listening_url(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if match := _URL.search(line):
                return match[0]
        raise self._failure()

    def _failure(self) -> BenchError:
        """The error of a process that ended instead of listening."""
        said = self.log_tail(1)
        self.close()
        return BenchError(f"{' '.join(self._command)} did not start: {said[-1] if said else 'it said nothing'}")

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _READY_S
        while not _is_healthy(self.url):
            if self._process.poll() is not None:
                raise self._failure()
            if time.monotonic() > deadline:
                self.close()
                raise BenchError(f"{' '.join(self._command)} is not ready after {_READY_S} s")
            time.sleep(_POLL_S)


def _environment() -> dict[str, str]:
    """This environment without the settings of the user's own server; which library to load still holds."""
    settings = {definition.environment for definition in definitions()}
    return {name: value for name, value in os.environ.items() if name not in settings}


def peak_bytes(pid: int) -> int | None:
    """The most memory that was resident at once, of a process and of all that it has started, each by itself."""
    try:
        own = _status_bytes(pid, "VmHWM")
    except OSError:
        return None
    return own + sum(peak_bytes(child) or 0 for child in children(pid))


def resident_bytes(pid: int) -> int:
    """The memory of a process that is resident now."""
    return _status_bytes(pid, "VmRSS")


def _status_bytes(pid: int, name: str) -> int:
    """A figure of memory that the system keeps; 0 if it keeps none, as of a process that has ended."""
    match = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(match[1]) << 10 if match else 0


def children(pid: int) -> Iterator[int]:
    """The processes that a process has started."""
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            yield from map(int, path.read_text().split())


def _is_healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=_READY_S).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False
