"""What is compared: one model on leftoff and on llama-server, started and killed as each measure needs them."""

import shlex
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from lab.bench.completion import Completed, Prompts, complete
from lab.bench.errors import BenchError
from lab.bench.port import free_port
from lab.bench.process import Process
from lab.gpu.record import Record

XLLAMACPP = "xllamacpp"  # in place of a llama-server: the one in that wheel, for the CPU
_SMALLEST_CONTEXT = 8192
_PEER_RAM_MIB = 32768
_LOG_LINES = 6


@dataclass(frozen=True)
class Server:
    """A server that runs."""

    name: str
    process: Process
    model: str = ""  # the one that is asked, of several
    num_vocabulary: int = 0  # of its vocabulary, where the server tells that only of models that are loaded

    @property
    def url(self) -> str:
        return self.process.url

    def ask(self, prompt: list[int], num_reply: int, sampling: dict[str, float] | None = None) -> Completed:
        return complete(self.url, prompt, num_reply, sampling, self.model)

    @cached_property
    def prompts(self) -> Prompts:
        if self.num_vocabulary:
            return Prompts(self.num_vocabulary)
        (model, *_) = httpx.get(f"{self.url}/v1/models").raise_for_status().json()["data"]
        return Prompts(int(model["meta"]["n_vocab"]))


@dataclass(frozen=True)
class Rig:
    """`long` is the length of the long prompts. Further flags go to the servers as they are.

    `conversations` of that length find room in each server at once; `kv_type` is other than a server's default.
    """

    model: Path
    llama_server: str
    record: Record
    folder: Path
    long: int = 32768
    threads: int = 0
    kv_type: str = ""
    leftoff_flags: tuple[str, ...] = ()
    peer_flags: tuple[str, ...] = ()
    conversations: int = 6
    second: Path | None = None  # another model, for what is measured with two

    @property
    def context(self) -> int:
        """Room for all conversations of a measure, in tokens."""
        return max(self.conversations * self.long, _SMALLEST_CONTEXT)

    @contextmanager
    def leftoff(self, slots: int, *flags: str, cache: Path | None = None) -> Iterator[Server]:
        """leftoff with its defaults but for the flags; in `cache`, or in a folder of its own that is empty at first."""
        with TemporaryDirectory(dir=self.folder, prefix="leftoff-gpu-") as empty:
            own = ["--slots", str(slots), "--ctx", str(self.context), *self._threads]
            own += [*self._kv_type("--kv-type"), *flags, *self.leftoff_flags]
            self.record.uses("leftoff", shlex.join(["leftoff", "serve", self.model.name, *own]))
            place = ["--port", "0", "--cache-dir", str(cache or empty)]
            command = [sys.executable, "-m", "leftoff", "serve", str(self.model), *place, *own]
            with self._started("leftoff", command) as server:
                yield server

    @contextmanager
    def peer(self, slots: int) -> Iterator[Server]:
        """llama-server, all layers on the GPU."""
        if self.llama_server == XLLAMACPP:
            own = ["--slots", str(slots), "--ctx", str(self.context), "--ram", str(_PEER_RAM_MIB), *self._threads]
            own += self._kv_type("--kv-type")
            self.record.uses("llama-server", shlex.join(["python", "-m", "lab.bench.peer", self.model.name, *own]))
            with self._started(
                "llama-server", [sys.executable, "-m", "lab.bench.peer", str(self.model), *own]
            ) as server:
                yield server
            return
        own = self._peer_flags(slots)
        self.record.uses("llama-server", shlex.join(["llama-server", "-m", self.model.name, *own]))
        with self._peer_started("-m", str(self.model), *own) as server:
            yield server

    @contextmanager
    def peer_router(self, slots: int, models: Path, most: int) -> Iterator[Server]:
        """llama-server with the models of a folder, as many loaded as `most`."""
        own = ["--models-max", str(most), *self._peer_flags(slots)]
        self.record.uses("llama-server", shlex.join(["llama-server", "--models-dir", "DIR", *own]))
        with self._peer_started("--models-dir", str(models), *own) as server:
            yield server

    @contextmanager
    def both(self, slots: int) -> Iterator[tuple[Server, Server]]:
        """Started at the same time."""
        with ExitStack() as stack:
            with ThreadPoolExecutor(2) as pool:
                starts = [pool.submit(stack.enter_context, one) for one in (self.leftoff(slots), self.peer(slots))]
            ours, theirs = (start.result() for start in starts)
            yield ours, theirs

    def _peer_flags(self, slots: int) -> list[str]:
        own = ["-np", str(slots), "-c", str(self.context), "-ngl", "99", "--kv-unified", "-fa", "on"]
        kv_type = [*self._kv_type("-ctk"), *self._kv_type("-ctv")]
        return [*own, "-cram", str(_PEER_RAM_MIB), *self._threads, *kv_type, *self.peer_flags]

    @contextmanager
    def _peer_started(self, *flags: str) -> Iterator[Server]:
        port = free_port()
        command = [self.llama_server, *flags, "--host", "127.0.0.1", "--port", str(port)]
        with self._started("llama-server", command, f"http://127.0.0.1:{port}") as server:
            yield server

    @property
    def _threads(self) -> list[str]:
        return ["--threads", str(self.threads)] if self.threads else []

    def _kv_type(self, flag: str) -> list[str]:
        return [flag, self.kv_type] if self.kv_type else []

    @contextmanager
    def _started(self, name: str, command: list[str], url: str = "") -> Iterator[Server]:
        began = time.perf_counter()
        process = Process(command, url)
        self.record.say(f"  {name} started in {time.perf_counter() - began:.1f} s")
        try:
            yield Server(name, process)
        except BenchError as error:
            said = "\n    ".join(process.log_tail(_LOG_LINES))
            raise BenchError(f"{error}; {name} logged last:\n    {said}") from error
        finally:
            process.kill()  # SIGTERM would wait until everything is on disk
            process.close()
