"""Four models behind one address with room for one or two: what may go wrong with them does, all at once.

    python -m tests.behaviour.models [SECONDS] [--room N]

Clients ask and leave, models are told to sleep, files are taken away and replaced by others. Ends with exit code 1 if a
request is lost, fails without a reason of its own, or gets another reply than from a server of its own; if more models
are loaded than there is room for, a busy one is put to sleep, or one that waits sees a turn too many of another.
"""

import argparse
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.host.late_host import LateHost
from leftoff.host.request_log import RequestLog, RequestRecord
from leftoff.host.seats import Seats
from leftoff.scheduler.gate import Gate
from leftoff.server.hosts import Hosts
from leftoff.server.server import serving
from tests.factory import model_path
from tests.patience import PATIENCE_S
from tests.server.fixtures import settings

ARCHITECTURES = ("llama", "qwen35", "gemma3", "mamba2")
CHANGED = ("gemma3", "mamba2")  # the names whose files are taken away and replaced
REASONS = (
    *("there is no model file at", "No such file or directory", "cannot be read"),
    *("is not the model any more", "was replaced while it was loaded"),
)
STORY = "The road goes up the hill and down to the harbour, where the boats lie. " * 2
PROMPTS = [f"{STORY}{end}" for end in ("", "And then?", "And then? Nobody knows.", f"{STORY}So they say.")]
NUM_CLIENTS = 6
NUM_REQUESTS = 300
MOST_TURNS = 2  # one, and one that begins after a request has come and before its model's thread has asked for room
LONGEST_WAIT = "longest wait in ms"

Replies = dict[tuple[str, str], str]  # by architecture and prompt


def ask(url: str, model: str, prompt: str, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
    body = {"model": model, "prompt": prompt, "max_tokens": 6, "temperature": 0}
    return dict(httpx.post(f"{url}/v1/completions", json=body, timeout=timeout_s).json())


def replies_of_their_own() -> Replies:
    """What each model says on a server that it has for itself."""
    replies = {}
    for architecture in ARCHITECTURES:
        with open_host(settings(architecture, deterministic=True)) as host, serving(host) as url:
            for prompt in PROMPTS:
                replies[architecture, prompt] = ask(url, "", prompt)["choices"][0]["text"]
    return replies


@dataclass
class Town:
    """The server with its models, those who ask them, and whatever was seen to be wrong."""

    folder: Path
    most: int
    replies: Replies
    seed: int
    seen: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    wakes: list[tuple[float, str]] = field(default_factory=list)  # when the load of each has begun
    contents: dict[str, set[str]] = field(default_factory=dict)  # what each name has ever been
    replaced: list[tuple[float, str]] = field(default_factory=list)  # when the file of each was

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.gguf"

    def put(self, name: str, architecture: str) -> None:
        """Replaces a file at once, as who fetches a model does."""
        self.contents.setdefault(name, set()).add(architecture)
        part = Path(shutil.copy(model_path(architecture), self.folder / f"{name}.part"))
        part.replace(self.path(name))
        self.replaced.append((time.time(), name))

    @contextmanager
    def served(self) -> Iterator[tuple[str, list[LateHost]]]:
        seats, log = Seats(most=self.most), RequestLog(64)
        log.watchers.append(self.check_wait)
        models = [LateHost(name, seats.add(), partial(self.opened, name, log)) for name in ARCHITECTURES]
        with ExitStack() as stack:
            for model in models:
                stack.callback(model.close)
            models[0].open()
            self.models = models
            yield stack.enter_context(serving(Hosts(models[0], models[1:]))), models

    def opened(self, name: str, log: RequestLog, gate: Gate) -> ModelHost:
        began = time.time()
        chosen = settings(model=str(self.path(name)), alias=name, deterministic=True, ram=16)
        host = open_host(chosen, log=log, gate=gate)
        fall_asleep, wake = host.engine.sleep, host.engine.wake

        def checked_sleep(*args: Any) -> None:  # noqa: ANN401
            if host.scheduler.runs:
                self.problems.append(f"{name} was put to sleep while it was busy")
            fall_asleep(*args)

        def checked_wake(*args: Any) -> None:  # noqa: ANN401
            began = time.time()
            wake(*args)
            self.woke(name, began)

        host.engine.sleep = checked_sleep  # type: ignore[assignment, method-assign]
        host.engine.wake = checked_wake  # type: ignore[assignment, method-assign]
        self.woke(name, began)
        return host

    def woke(self, name: str, began: float) -> None:
        self.wakes.append((began, name))
        hosts = [model.host for model in getattr(self, "models", ()) if model.name != name]
        num_awake = 1 + sum(host is not None and host.is_alive and not host.engine.is_asleep for host in hosts)
        if num_awake > self.most:
            self.problems.append(f"{num_awake} models are loaded: there is room for {self.most}")

    def check_wait(self, record: RequestRecord) -> None:
        """By the loads of others that have begun after it came and before that of its own model."""
        self.seen[LONGEST_WAIT] = max(self.seen[LONGEST_WAIT], round(record.waited_ms))
        if not record.waited_for:
            return
        name = record.waited_for.partition(" was ")[0]
        began = record.at - (record.waited_ms + record.prompt_ms + record.generation_ms) / 1000
        end = began + record.waited_ms / 1000
        own = max((at for at, who in self.wakes if who == name and at < end), default=end)
        turns = Counter(who for at, who in self.wakes if began < at < own and who != name)
        self.seen[f"waited for {max(turns.values(), default=0)} turns of another"] += 1
        # another file is another model: whoever waited for the old one waits anew
        num_replaced = sum(began < at < end and who == name for at, who in self.replaced)
        if any(num > MOST_TURNS + num_replaced for num in turns.values()):
            self.problems.append(f"a request for {name} has waited for {dict(turns)}: {record.waited_for}")

    def check(self, name: str, prompt: str, reply: dict[str, Any]) -> None:
        if "choices" in reply:
            self.seen["answered"] += 1
            expected = {self.replies[architecture, prompt] for architecture in self.contents[name]}
            if reply["choices"][0]["text"] not in expected:
                self.problems.append(f"{name} said {reply['choices'][0]['text']!r}: must be one of {expected}")
        elif name in CHANGED and any(reason in reply["error"]["message"] for reason in REASONS):
            self.seen["failed with its reason"] += 1
        else:
            self.problems.append(f"{name} failed: {reply}")

    def client(self, url: str, number: int, num_requests: int, end: float) -> None:
        rng = random.Random(f"{self.seed}/{number}")
        for _ in range(num_requests):
            if time.monotonic() > end:
                return
            name, prompt, dice = rng.choice(ARCHITECTURES), rng.choice(PROMPTS), rng.random()
            try:
                if dice < 0.15:
                    ask(url, name, prompt, timeout_s=rng.uniform(0.01, 0.3))
                elif dice < 0.2:
                    body = {"model": name, "keep_alive": 0}
                    httpx.post(f"{url}/api/generate", json=body, timeout=PATIENCE_S)
                    self.seen["told to sleep"] += 1
                else:
                    self.check(name, prompt, ask(url, name, prompt))
            except httpx.TimeoutException as error:
                self.seen["left"] += 1
                if dice >= 0.2:
                    self.problems.append(f"{name} has not answered for {PATIENCE_S} s: {error}")

    def change_files(self, is_over: threading.Event) -> None:
        rng = random.Random(self.seed)
        while not is_over.wait(rng.uniform(0.1, 0.8)):
            name = rng.choice(CHANGED)
            if rng.random() < 0.5:
                self.path(name).unlink(missing_ok=True)
                self.seen["file taken away"] += 1
                is_over.wait(rng.uniform(0.1, 0.5))
            self.put(name, rng.choice(ARCHITECTURES))
            self.seen["file replaced"] += 1

    def play(self, seconds: float, num_requests: int) -> None:
        """Until the time is over, or all requests are made; then every model must still answer."""
        for name in ARCHITECTURES:
            self.put(name, name)
        with self.served() as (url, _):
            end, is_over = time.monotonic() + seconds, threading.Event()
            each = num_requests // NUM_CLIENTS
            clients = [threading.Thread(target=self.client, args=(url, n, each, end)) for n in range(NUM_CLIENTS)]
            breaker = threading.Thread(target=self.change_files, args=(is_over,))
            for thread in (breaker, *clients):
                thread.start()
            for thread in clients:
                thread.join()
            is_over.set()
            breaker.join()
            for name in ARCHITECTURES:
                self.put(name, name)
                reply = ask(url, name, PROMPTS[0])
                # who is awake has not seen yet that its file is another; who sleeps may be told so once
                self.check(name, PROMPTS[0], reply)
        self.seen["swaps"] += len(self.wakes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", nargs="?", type=float, default=120.0)
    parser.add_argument("--room", type=int, metavar="N", help="for so many models; without it, for one and two in turn")
    args = parser.parse_args()
    replies, end, seed, failed = replies_of_their_own(), time.monotonic() + args.seconds, 0, False
    while (left := end - time.monotonic()) > 0 and not failed:
        with tempfile.TemporaryDirectory() as folder:
            town = Town(Path(folder), args.room or 1 + seed % 2, replies, seed)
            town.play(left, NUM_REQUESTS)
        print(f"seed {seed}, room for {town.most}: {dict(town.seen)}", flush=True)
        for problem in town.problems[:20]:
            print(problem)
        failed, seed = bool(town.problems), seed + 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
