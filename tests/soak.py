"""An hour of a busy server, pressed into minutes: many conversations, small budgets, clients that leave, restarts.

    python -m tests.soak --minutes 10

Ends with exit code 1 if memory or open files grow, if a budget is broken, if the trees contradict themselves, or if a
file on disk does not verify.
"""

import argparse
import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np

from leftoff.api.server import serving
from leftoff.api.service import Service
from leftoff.config import MIB, Settings
from leftoff.disk.verify import verify
from tests.api.wire import Texts, says
from tests.factory import model_path

NUM_CONVERSATIONS = 40
NUM_CLIENTS = 6
RAM_MIB, DISK_MIB = 4, 8
GROWTH = 1.05


@dataclass
class Level:
    """What must not grow."""

    rss_bytes: int
    num_files: int

    @classmethod
    def now(cls) -> "Level":
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return cls(pages * os.sysconf("SC_PAGE_SIZE"), len(list(Path("/proc/self/fd").iterdir())))


@dataclass
class Soak:
    seconds: float
    folder: Path
    seed: int = 0
    requests_per_life: int = 120  # of one server, until it is started again
    num_requests: int = 0
    num_left: int = 0
    num_reused: int = 0
    levels: list[Level] = field(default_factory=list)

    def run(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        self._texts = Texts(self.seed)
        self._header = says("system", self._texts.text(150))
        self._talks = [[self._header] for _ in range(NUM_CONVERSATIONS)]
        end = time.monotonic() + self.seconds
        while time.monotonic() < end:
            with self._server() as (service, url):
                self._live(url)
                service.worker.call(service.cache.check_integrity).result()
                service.worker.call(lambda: self._check_budgets(service)).result()
            self.levels.append(Level.now())

    @contextmanager
    def _server(self) -> Iterator[tuple[Service, str]]:
        settings = Settings(
            model=str(model_path("qwen35")),
            ctx=4096,
            threads=1,
            slots=3,
            ram=RAM_MIB,
            disk=DISK_MIB,
            cache_dir=str(self.folder),
        )
        with Service(settings) as service, serving(service) as url:
            yield service, url

    def _live(self, url: str) -> None:
        with httpx.Client(base_url=url, timeout=60) as http, ThreadPoolExecutor(NUM_CLIENTS) as clients:
            rounds = self.requests_per_life // NUM_CLIENTS
            for _ in range(rounds):
                chosen = self._rng.choice(NUM_CONVERSATIONS, NUM_CLIENTS, replace=False)
                leaves = self._rng.random(NUM_CLIENTS) < 0.2
                for index in chosen:
                    self._go_on(int(index))
                list(
                    clients.map(
                        lambda it: self._ask(http, self._talks[int(it[0])], bool(it[1])),
                        zip(chosen, leaves, strict=True),
                    )
                )

    def _go_on(self, index: int) -> None:
        """The next message; sometimes an edit of an old one, sometimes a new conversation."""
        talk = self._talks[index]
        what = self._rng.random()
        if len(talk) > 16 or what < 0.1:
            talk = [self._header]
        elif what < 0.25 and len(talk) > 3:
            talk = talk[: 2 * int(self._rng.integers(1, len(talk) // 2 + 1)) - 1]
        self._talks[index] = [*talk, says("user", self._texts.text(5, 60))]

    def _ask(self, http: httpx.Client, talk: list[dict[str, object]], leaves: bool) -> None:
        body = {"messages": talk, "max_tokens": 12, "stream": True}
        words: list[str] = []
        with http.stream("POST", "/v1/chat/completions", json=body) as reply:
            assert reply.status_code == 200, reply.read()
            for line in filter(lambda line: line.startswith("data: {"), reply.iter_lines()):
                chunk = json.loads(line.removeprefix("data: "))
                assert "error" not in chunk, chunk
                words += [choice["delta"].get("content") or "" for choice in chunk["choices"]]
                self.num_reused += chunk.get("timings", {}).get("cache_n", 0)
                if leaves and len(words) > 3:
                    self.num_left += 1
                    break
        self.num_requests += 1
        talk.append(says("assistant", "".join(words)))

    def _check_budgets(self, service: Service) -> None:
        """On the engine's thread, so that nothing is put meanwhile."""
        assert service.cache.disk is not None
        assert service.cache.disk.shelf.flush(30.0)
        for tier in service.cache.tiers:
            assert tier.store.used_bytes <= tier.store.budget_bytes, f"{tier.store.name} is over its budget"
        on_disk = sum(path.stat().st_size for path in self.folder.rglob("blobs/*/*") if path.is_file())
        assert on_disk <= DISK_MIB * MIB, f"{on_disk} bytes of files"

    def problems(self) -> list[str]:
        settled = self.levels[len(self.levels) // 3]
        last = self.levels[-1]
        found = []
        if last.rss_bytes > GROWTH * settled.rss_bytes:
            found.append(f"memory grew from {settled.rss_bytes >> 20} to {last.rss_bytes >> 20} MiB")
        if last.num_files > settled.num_files:
            found.append(f"open files grew from {settled.num_files} to {last.num_files}")
        for folder in (self.folder / "v1").iterdir():
            found += [f"{folder}: {bad}" for bad in verify(folder).faults]
        return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(60 * args.minutes, Path(folder))
        soak.run()
        problems = soak.problems()
    print(f"{soak.num_requests} requests, {soak.num_left} left early, {len(soak.levels)} servers one after the other")
    print("memory, MiB: ", *(level.rss_bytes >> 20 for level in soak.levels))
    print("open files:  ", *(level.num_files for level in soak.levels))
    for problem in problems:
        print(problem)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
