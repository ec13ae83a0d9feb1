"""Servers for histories: one that lives through everything, and one that never left."""

import random
import signal
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import TracebackType

import httpx

from tests.behaviour.eager_drafts import eager_drafts
from tests.cli.here import served
from tests.cli.running import serving

_PATIENCE_S = 600.0  # bounds a hang
# In tokens of context, slots, MiB of RAM and of disk: every life is another mixture, some of them with hardly any room.
_CONTEXTS, _SLOTS, _RAM_MIB, _DISK_MIB = (1024, 4096), (1, 3), (64, 64, 4), (256, 256, 8)
_IN_RAM = ("--ram", "64", "--disk", "0")
# Whether a client's text has the tokens that the model wrote is another matter, and depends on the past by design.
_COMMON = ("--log-level", "warning", "--no-remember-replies")


class Lives:
    """`leftoff serve` on one folder, ended by SIGTERM or SIGKILL now and then, and started with other settings."""

    def __init__(
        self, model: Path, folder: Path, seed: int, flags: Sequence[str], *, is_last: bool, drafts: bool = False
    ) -> None:
        """With `drafts` it drafts whatever it finds. The last life is not ended by a signal, and needs no process."""
        self._model = model
        self._drafts = drafts
        self._is_last = is_last
        self._folder = folder
        self._rng = random.Random(seed)
        self._flags = flags
        self._life = ExitStack()
        self.num_lives = 0
        self.http: httpx.Client

    def __enter__(self) -> "Lives":
        self.begin(is_last=self._is_last)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._life.close()

    def begin(self, *, is_last: bool) -> None:
        """Ends the present life, if there is one."""
        self._life.close()
        rng = self._rng
        flags = {
            "--ctx": rng.choice(_CONTEXTS),
            "--slots": rng.choice(_SLOTS),
            "--ram": rng.choice(_RAM_MIB),
            "--disk": rng.choice(_DISK_MIB),
        }
        given = [text for name, value in flags.items() for text in (name, str(value))]
        end = rng.choice([signal.SIGTERM, signal.SIGKILL])
        draft = ("--draft", "auto" if self._drafts else "off")
        arguments = [*given, *draft, "--cache-dir", str(self._folder), *self._flags]
        if is_last:
            self._life.enter_context(eager_drafts() if self._drafts else nullcontext())
            self.http = self._life.enter_context(serving_here(self._model, arguments))
        else:
            module = "tests.behaviour.eager_drafts" if self._drafts else "leftoff"
            self.http = self._life.enter_context(_served(self._model, arguments, end, module))
        self.num_lives += 1


def never_left(model: Path, flags: Sequence[str]) -> AbstractContextManager[httpx.Client]:
    """A server with one slot whose cache is empty for whoever comes with a new salt."""
    return serving_here(model, ["--ctx", "4096", "--slots", "1", "--draft", "off", *_IN_RAM, *flags])


def many_slots(model: Path, flags: Sequence[str]) -> AbstractContextManager[httpx.Client]:
    """A server that batches what comes together. Without salts its cache is used, with new ones it is not."""
    return serving_here(model, ["--ctx", "8192", "--slots", "3", *_IN_RAM, *flags])


def with_neighbours(model: Path, flags: Sequence[str]) -> AbstractContextManager[httpx.Client]:
    """The same, but idle sequences stay in the engine: what they do to the rounding is the measure of noise."""
    return serving_here(model, ["--ctx", "4096", "--slots", "3", "--parked", "1", "--draft", "off", *_IN_RAM, *flags])


@contextmanager
def serving_here(model: Path, flags: Sequence[str]) -> Iterator[httpx.Client]:
    """In this process: a server that nobody kills needs none of its own."""
    with (
        served(*_COMMON, *flags, model=model) as server,
        httpx.Client(base_url=server.url, timeout=_PATIENCE_S) as http,
    ):
        yield http


@contextmanager
def _served(model: Path, flags: Sequence[str], end: signal.Signals, module: str) -> Iterator[httpx.Client]:
    with serving(*_COMMON, *flags, model=model, module=module) as server:
        assert server.url, f"it did not start: {server.log}"
        with httpx.Client(base_url=server.url, timeout=_PATIENCE_S) as http:
            yield http
        server.process.send_signal(end)
        server.process.wait(_PATIENCE_S)
        assert "Traceback" not in server.log, server.log
