"""`leftoff serve` as people run it: a process of its own, which says where it listens."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from tests.factory import model_path
from tests.patience import PATIENCE_S

SMALL = ("--ctx", "1024", "--threads", "1", "--ram", "64", "--slots", "2")
_URL = re.compile(r"http://[\d.]+:\d+")


@dataclass
class Server:
    """A server that listens. `screen` is what it has printed until then."""

    process: subprocess.Popen[str]
    log_file: IO[str]
    screen: list[str] = field(default_factory=list)
    url: str = ""

    def read_screen(self) -> None:
        """Until it has said where it is and the screen is complete, or it has ended."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.screen.append(line.rstrip("\n"))
            match = _URL.search(line)
            self.url = self.url or (match[0] if match else "")
            if line.startswith("Ctrl-C"):
                return

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    @property
    def log(self) -> str:
        self.log_file.seek(0)
        return self.log_file.read()


@contextmanager
def serving(
    *arguments: str, model: Path | str | None = None, max_handles: int | None = None, module: str = "leftoff"
) -> Iterator[Server]:
    """`model` is another than the tests' own; an empty one leaves it to leftoff."""
    path = str(model_path("qwen35") if model is None else model)
    command = [sys.executable, "-m", module, "serve", *filter(None, [path]), "--port", "0", *SMALL, *arguments]
    if max_handles is not None:
        command = ["sh", "-c", f'ulimit -n {max_handles}; exec "$@"', "sh", *command]
    with (
        TemporaryFile("w+") as log_file,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log_file, text=True) as process,
    ):
        server = Server(process, log_file)
        try:
            server.read_screen()
            yield server
        finally:
            if process.poll() is None:
                process.kill()
