"""The servers that are compared: started alike for each workload, or running already."""

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from lab.bench.ask import Ask, says
from lab.bench.client import Client
from lab.bench.process import Process
from lab.bench.workload import Setup

_WARM_UP = Ask([says("user", "Hello!")], 1)  # the first request of a process pays for what all of them use


@dataclass
class Station:
    """A server while a workload is played on it."""

    client: Client
    process: Process | None = None
    forgets: bool = False  # everything, before each request
    _earlier_idle_tokens: int = 0

    def restart(self) -> None:
        assert self.process is not None, "a server that runs already cannot be restarted"
        self._earlier_idle_tokens += self.client.idle_tokens()
        self.client.close()
        self.process.stop()
        self.process.start()
        self.client = Client(self.process.url)
        self.client.ask(_WARM_UP)

    @property
    def idle_tokens(self) -> int:
        return self._earlier_idle_tokens + self.client.idle_tokens()

    @property
    def peak_bytes(self) -> int | None:
        return self.process.peak_bytes if self.process else None


@dataclass(frozen=True)
class Started:
    """A server that is started anew for every workload, with its cache in a folder of its own."""

    name: str
    command: Callable[[Setup, Path], list[str]]
    forgets: bool = False

    @contextmanager
    def open(self, setup: Setup) -> Iterator[Station]:
        with (
            TemporaryDirectory(prefix="leftoff-bench-") as folder,
            closing(Process(self.command(setup, Path(folder)))) as process,
        ):
            station = Station(Client(process.url), process, self.forgets)
            try:
                station.client.ask(_WARM_UP)
                yield station
            finally:
                station.client.close()


@dataclass(frozen=True)
class Running:
    """A server that somebody else has started."""

    name: str
    api_key: str = ""

    @contextmanager
    def open(self, _setup: Setup) -> Iterator[Station]:
        with closing(Client(self.name, self.api_key)) as client:
            client.ask(_WARM_UP)
            yield Station(client)


Side = Started | Running


def leftoff(model: Path, threads: int) -> Started:
    return Started("leftoff", _leftoff_command(model, threads))


def cold(model: Path, threads: int) -> Started:
    return Started("cold", _leftoff_command(model, threads, "--no-read-ahead"), forgets=True)


def deterministic(model: Path, threads: int) -> Started:
    return Started("deterministic", _leftoff_command(model, threads, "--deterministic"))


def llama_server(model: Path, threads: int) -> Started:
    def command(setup: Setup, _folder: Path) -> list[str]:
        return [sys.executable, "-m", "lab.bench.peer", str(model), *_shared_flags(setup, threads)]

    return Started("llama-server", command)


def _leftoff_command(model: Path, threads: int, *more: str) -> Callable[[Setup, Path], list[str]]:
    def command(setup: Setup, folder: Path) -> list[str]:
        tier = ["--disk", str(setup.disk), "--cache-dir", str(folder)]
        overflow = ["--overflow", "cut" if setup.cuts else "error"]
        flags = ["--port", "0", *_shared_flags(setup, threads), *tier, *overflow, *more]
        return [sys.executable, "-m", "leftoff", "serve", str(model), *flags]

    return command


def _shared_flags(setup: Setup, threads: int) -> list[str]:
    values = {"--slots": setup.slots, "--ctx": setup.ctx, "--ram": setup.ram, "--threads": threads}
    return [text for flag, value in values.items() for text in (flag, str(value))]
