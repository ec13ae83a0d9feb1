"""A server under supervision comes back after a crash, and goes on from disk."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.running import SMALL, Server, serving
from tests.disk.remains import Remains
from tests.factory import model_path
from tests.patience import PATIENCE_S, until
from tests.server.wire import MessageDict, Wire, says

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="finds the server's process by Linux's /proc")

WORDS = "the old man and the road " * 40


def child_of(server: Server) -> int:
    return children_of(server.process.pid)[0]


def children_of(process: int) -> list[int]:
    return [*map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())]


def told(*contents: str) -> list[MessageDict]:
    return [says("assistant" if index % 2 else "user", content) for index, content in enumerate(contents)]


def ask(server: Server, *contents: str) -> dict[str, Any]:
    body = {"messages": told(*contents), "max_tokens": 8, "temperature": 0}
    reply = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=PATIENCE_S).json()
    return {"reply": reply["choices"][0]["message"]["content"], **reply["timings"]}


def saved_files(folder: Path) -> int:
    return sum(path.is_file() for path in folder.rglob("blobs/*/*"))


def wait_for_the_disk(server: Server, folder: Path, num_tokens: int, *contents: str) -> None:
    """Until the index says that so much of a conversation can be resumed."""
    with httpx.Client(base_url=server.url) as http:
        prompt = Wire(http).prompt(told(*contents))
    remains = Remains(folder)
    assert until(lambda: saved_files(folder) > 0 and remains.resumable(prompt) >= num_tokens)


def test_a_crash_loses_nothing(tmp_path: Path) -> None:
    with serving("--supervise", "--disk", "64", "--cache-dir", str(tmp_path)) as server:
        first = ask(server, WORDS)
        going_on = WORDS, first["reply"], "and then"
        wait_for_the_disk(server, tmp_path, first["prompt_n"] - 8, *going_on)
        os.kill(child_of(server), signal.SIGSEGV)
        # The socket is held: this request waits for the new server.
        second = ask(server, *going_on)
        assert second["cache_n"] >= first["prompt_n"] - 8
        assert server.stop() == 0


SUPERVISE = """
import socket, sys
from rich.console import Console
from leftoff.cli.supervisor import Supervisor
with socket.create_server(("127.0.0.1", 0)) as listener:
    sys.exit(Supervisor(Console(), listener, sys.argv[2:], first_pause_s=float(sys.argv[1])).run())
"""


def supervised(model: Path, *flags: str, first_pause_s: float = 0.01) -> "subprocess.Popen[str]":
    """The supervisor alone, which is there much sooner than the whole command."""
    command = [sys.executable, "-c", SUPERVISE, str(first_pause_s), "serve", str(model), *SMALL, *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_it_gives_up_on_a_server_that_only_crashes() -> None:
    with supervised(model_path("qwen35")) as supervisor:
        assert supervisor.stdout is not None
        killed: list[int] = []
        for _ in range(5):  # each before it has loaded: the five crashes lie within a minute on any machine
            assert until(lambda: not {*children_of(supervisor.pid)} <= {*killed})
            killed.append(children_of(supervisor.pid)[0])
            os.kill(killed[-1], signal.SIGKILL)
        assert supervisor.wait(PATIENCE_S) == 128 + signal.SIGKILL
        assert supervisor.stdout.read().count("starting it again") == 4


def test_its_end_is_the_servers_end(tmp_path: Path) -> None:
    with supervised(model_path("qwen35"), "--disk", "64", "--cache-dir", str(tmp_path)) as supervisor:
        server = Server(supervisor, sys.stderr)
        server.read_screen()
        child = child_of(server)
        ask(server, WORDS)
        assert server.stop() == 0
        assert not Path(f"/proc/{child}").exists()
    assert saved_files(tmp_path) > 0, "what rested in the slots was saved"


def test_it_can_be_stopped_between_a_crash_and_the_next_start() -> None:
    with supervised(model_path("qwen35"), first_pause_s=PATIENCE_S) as supervisor:
        assert supervisor.stdout is not None
        assert until(lambda: children_of(supervisor.pid))
        os.kill(children_of(supervisor.pid)[0], signal.SIGKILL)
        assert "crashed" in supervisor.stdout.readline()
        supervisor.terminate()
        assert supervisor.wait(PATIENCE_S) == 0
        assert supervisor.stdout.read() == "", "only the crash is told"


def test_a_mistake_in_the_settings_is_not_tried_again(tmp_path: Path) -> None:
    with supervised(tmp_path / "no.gguf") as supervisor:
        assert supervisor.wait(PATIENCE_S) == 1
