"""An hour of a busy server, pressed into minutes: many conversations, small budgets, clients that leave, restarts.

    python -m tests.behaviour.soak --minutes 10

The server is a process of its own. For two thirds of the time it is one and the same; then it is started again and
again on what it left on disk. Ends with exit code 1 if memory or open files grow from one look to the next within a
life, or from one life to the next at the same point; if a budget is broken, if the trees contradict themselves, or if
a file on disk does not verify.
"""

import argparse
import gc
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path

import httpx

from leftoff.blobs.store import MediumBlobStore
from leftoff.config import MIB, Settings
from leftoff.disk.tools.verify import verify_folder
from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.server.hosts import Hosts
from leftoff.server.server import Server
from tests.factory import model_path
from tests.patience import PATIENCE_S, until
from tests.server.crowd import Talker, connected
from tests.server.wire import Texts

NUM_CLIENTS = 6
NUM_CONVERSATIONS = 7  # of each
RAM_MIB, DISK_MIB = 4, 8
GROWTH = 1.05

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload([__name__])  # each server is a fork of a process that has imported it all


@dataclass(frozen=True)
class Level:
    """What must not grow."""

    rss_bytes: int
    num_files: int

    @classmethod
    def of(cls, pid: int) -> "Level":
        process = Path("/proc", str(pid))
        pages = int((process / "statm").read_text().split()[1])
        return cls(pages * os.sysconf("SC_PAGE_SIZE"), len(list((process / "fd").iterdir())))


@dataclass(frozen=True)
class Running:
    """A server in a process of its own, and the way to ask it whether all is well."""

    url: str
    pid: int
    pipe: Connection

    def check(self) -> Level:
        self.pipe.send(True)
        try:
            self.pipe.recv()
        except EOFError:
            raise AssertionError("the server has ended, see above") from None
        return Level.of(self.pid)


@dataclass
class Soak:
    seconds: float
    folder: Path
    seed: int = 0
    requests_per_look: int = 240
    num_requests: int = 0
    num_left: int = 0
    num_reused: int = 0
    life: list[Level] = field(default_factory=list)  # of one long life, look by look
    starts: list[Level] = field(default_factory=list)  # of short ones, each at its first look

    def run(self) -> None:
        header = Texts(self.seed).text(150)
        seeds = range(100 * self.seed, 100 * self.seed + NUM_CLIENTS)
        self._talkers = [Talker(seed, header, NUM_CONVERSATIONS) for seed in seeds]
        began = time.monotonic()
        with self._server() as running:
            while len(self.life) < 3 or time.monotonic() - began < 2 / 3 * self.seconds:
                self.life.append(self._look(running))
        while len(self.starts) < 2 or time.monotonic() - began < self.seconds:
            with self._server() as running:
                self.starts.append(self._look(running))

    @contextmanager
    def _server(self) -> Iterator[Running]:
        here, there = _processes.Pipe()
        process = _processes.Process(target=_serve, args=(self.folder, there), daemon=True)
        process.start()
        there.close()
        assert process.pid is not None
        try:
            yield Running(here.recv(), process.pid, here)
            here.send(False)
            process.join(PATIENCE_S)
            assert process.exitcode == 0, f"the server ended with {process.exitcode}"
        finally:
            process.kill()

    def _look(self, running: Running) -> Level:
        with connected(running.url) as http, ThreadPoolExecutor(NUM_CLIENTS) as clients:
            list(clients.map(lambda talker: self._talk(http, talker), self._talkers))
        return running.check()

    def _talk(self, http: httpx.Client, talker: Talker) -> None:
        for _ in range(self.requests_per_look // NUM_CLIENTS):
            told = talker.ask(http, talker.choose())
            assert told.cut_by is None, told.cut_by
            self.num_requests += 1
            self.num_left += told.is_left
            self.num_reused += told.answer.cached

    def problems(self) -> list[str]:
        found = [*_growth(self.life[len(self.life) // 3 :], "of one life"), *_growth(self.starts, "after a start")]
        for folder in (self.folder / "v1").iterdir():
            found += [f"{folder}: {bad}" for bad in verify_folder(folder).faults]
        return found


def _serve(folder: Path, pipe: Connection) -> None:
    """The other process: serves until it is told to end, and checks itself when it is asked to."""
    settings = Settings(
        model=str(model_path("qwen35")),
        ctx=4096,
        threads=1,
        slots=3,
        ram=RAM_MIB,
        disk=DISK_MIB,
        cache_dir=str(folder),
    )
    with open_host(settings) as host, closing(Server(Hosts(host), replace(settings, port=0))) as server:
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        pipe.send(server.url)
        while pipe.recv():
            host.call(lambda: _check(host, folder)).result()
            assert until(lambda: not server.server_state.connections), "connections are not closed"
            gc.collect()
            pipe.send(True)
        server.stop()
        thread.join()


def _check(host: ModelHost, folder: Path) -> None:
    """On the engine's thread, so that nothing is put meanwhile."""
    host.cache.check_integrity()
    assert host.cache.disk is not None
    assert isinstance(host.cache.disk.blobs, MediumBlobStore)
    assert host.cache.disk.blobs.flush(PATIENCE_S)
    for tier in host.cache.tiers:
        assert tier.budget.used_bytes <= tier.budget.budget_bytes, f"{tier.budget.name} is over its budget"
    on_disk = sum(path.stat().st_size for path in folder.rglob("blobs/*/*") if path.is_file())
    assert on_disk <= DISK_MIB * MIB, f"{on_disk} bytes of files"


def _growth(levels: Sequence[Level], when: str) -> Iterator[str]:
    first, last = levels[0], levels[-1]
    if last.rss_bytes > GROWTH * first.rss_bytes:
        yield f"memory {when} grew from {first.rss_bytes >> 20} to {last.rss_bytes >> 20} MiB"
    if last.num_files > first.num_files:
        yield f"open files {when} grew from {first.num_files} to {last.num_files}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(60 * args.minutes, Path(folder))
        soak.run()
        problems = soak.problems()
    print(f"{soak.num_requests} requests, {soak.num_left} left early; looked every {soak.requests_per_look}")
    for name, levels in (("one life", soak.life), ("each start", soak.starts)):
        print(f"memory of {name}, MiB:", *(f"{level.rss_bytes / MIB:.1f}" for level in levels))
        print(f"open files of {name}:", *(level.num_files for level in levels))
    for problem in problems:
        print(problem)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
