"""A server under supervision comes back after a crash, and goes on from disk."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.running import Server, serving
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="finds the server's process by Linux's /proc")

WORDS = "the old man and the road " * 40


def child_of(server: Server) -> int:
    return children_of(server)[0]


def children_of(server: Server) -> list[int]:
    number = server.process.pid
    return [*map(int, Path(f"/proc/{number}/task/{number}/children").read_text().split())]


def ask(server: Server, *contents: str) -> dict[str, Any]:
    roles = ["user", "assistant"] * len(contents)
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
    body = {"messages": messages, "max_tokens": 8, "temperature": 0}
    reply = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=PATIENCE_S).json()
    return {"reply": reply["choices"][0]["message"]["content"], **reply["timings"]}


def saved_files(folder: Path) -> int:
    return sum(path.is_file() for path in folder.rglob("blobs/*/*"))


def wait_for_the_disk(folder: Path) -> None:
    """Until nothing is written any more."""
    before = -1
    for _ in range(100):
        count = saved_files(folder)
        if count == before > 0:
            return
        before = count
        time.sleep(0.3)
    raise AssertionError("nothing was saved")


def test_a_crash_loses_nothing(tmp_path: Path) -> None:
    with serving("--supervise", "--disk", "64", "--cache-dir", str(tmp_path)) as server:
        first = ask(server, WORDS)
        wait_for_the_disk(tmp_path)
        os.kill(child_of(server), signal.SIGSEGV)
        # The socket is held: this request waits for the new server.
        second = ask(server, WORDS, first["reply"], "and then")
        assert second["cache_n"] >= first["prompt_n"] - 8
        assert server.stop() == 0


def test_it_gives_up_on_a_server_that_only_crashes(tmp_path: Path) -> None:
    with serving("--supervise", "--disk", "0", "--cache-dir", str(tmp_path)) as server:
        for _ in range(5):
            os.kill(child_of(server), signal.SIGKILL)
            while server.process.poll() is None:
                try:
                    httpx.get(f"{server.url}/health", timeout=PATIENCE_S)
                    break
                except httpx.TransportError:
                    time.sleep(0.1)
        assert server.process.wait(PATIENCE_S) == 128 + signal.SIGKILL


def test_its_end_is_the_servers_end(tmp_path: Path) -> None:
    with serving("--supervise", "--disk", "64", "--cache-dir", str(tmp_path)) as server:
        child = child_of(server)
        ask(server, WORDS)
        assert server.stop() == 0
        assert not Path(f"/proc/{child}").exists()
    assert saved_files(tmp_path) > 0, "what rested in the slots was saved"


def test_it_can_be_stopped_between_a_crash_and_the_next_start(tmp_path: Path) -> None:
    with serving("--supervise", "--disk", "0", "--cache-dir", str(tmp_path)) as server:
        os.kill(child_of(server), signal.SIGKILL)
        while children_of(server):
            time.sleep(0.01)
        assert server.stop() == 0
        assert len(server.screen) == len([*server.screen, *(server.process.stdout or ())]) - 1, "only the crash is told"


def test_a_mistake_in_the_settings_is_not_tried_again(tmp_path: Path) -> None:
    with serving("--supervise", model=tmp_path / "no.gguf") as server:
        assert server.process.wait(PATIENCE_S) == 1
