"""The real parts of a fleet, for tests: a Redis, an S3 endpoint, a wire that can be slow or cut, and servers.

Every part is a process of its own, or a socket, so that it can be killed, stopped and started again.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest.mock import patch

import httpx
import pytest

from tests.patience import until

BUCKET = "leftoff"
_FULL = b"HTTP/1.1 507 Insufficient Storage\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
S3_ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


def redis_program() -> str:
    """A Redis or Valkey that is installed; without one the test is skipped."""
    path = shutil.which("redis-server") or shutil.which("valkey-server")
    if path is None:
        pytest.skip("there is no redis-server here: install it (apt-get install redis-server) to test the store")
    return path


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class Part:
    """A process that can be killed and started again at the same address."""

    def __init__(self, command: list[str], port: int) -> None:
        self._command = command
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert until(self._answers), f"{self._command[0]} does not listen"

    def stop(self) -> None:
        """As a service manager does it."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        self._signal(signal.SIGCONT)
        self._signal(number)
        if self._process is not None:
            self._process.wait()

    def freeze(self) -> None:
        """It accepts connections, and answers nothing: what a partition looks like from outside."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False


class Redis(Part):
    """Keeps nothing when it is killed, unless `folder` is given."""

    def __init__(self, folder: Path | None = None) -> None:
        port = free_port()
        saving = ["--dir", str(folder), "--appendonly", "yes"] if folder is not None else []
        super().__init__([redis_program(), "--port", str(port), "--save", "", *saving], port)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"


class S3(Part):
    """moto's S3, which keeps all in memory: killed, it forgets all buckets."""

    def __init__(self) -> None:
        pytest.importorskip("moto", reason="there is no moto here: pip install 'moto[server]' to test S3")
        port = free_port()
        super().__init__([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port)

    def start(self) -> None:
        super().start()
        httpx.put(f"http://127.0.0.1:{self.port}/{BUCKET}").raise_for_status()

    @property
    def url(self) -> str:
        return f"s3://{BUCKET}/cache"


class Wire:
    """A TCP connection to a port, through which answers can be late, come not at all, or refuse to store anything."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.delay_s = 0.0
        self.is_cut = False
        self.is_full = False  # what is to be stored is refused
        self.is_closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.is_closed = True
        self._listener.close()

    def _accept(self) -> None:
        while not self.is_closed:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                continue
            threading.Thread(target=self._pass, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, True), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if self.is_full and not is_answer and data.startswith(b"PUT "):
                    source.sendall(_FULL)
                    break
                if is_answer and self.delay_s:
                    time.sleep(self.delay_s)
                while self.is_cut and not self.is_closed:
                    time.sleep(0.01)
                sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        source.close()


@contextmanager
def redis(folder: Path | None = None) -> Iterator[Redis]:
    part = Redis(folder)
    try:
        yield part
    finally:
        part.kill()


@contextmanager
def s3() -> Iterator[S3]:
    part = S3()
    try:
        yield part
    finally:
        part.kill()


@contextmanager
def wire(target: int) -> Iterator[Wire]:
    between = Wire(target)
    try:
        yield between
    finally:
        between.close()


@contextmanager
def s3_environment(port: int) -> Iterator[None]:
    """What a process needs to find the endpoint."""
    with patch.dict(os.environ, S3_ENVIRONMENT | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}):
        yield
