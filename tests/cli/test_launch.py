"""`leftoff launch`, with a program that stands for the agent. The agents themselves are played by `make clients`."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import httpx
import pytest

from leftoff.agents import CODING_AGENTS
from leftoff.cli.main import main
from tests.cli.here import Here, served
from tests.factory import model_path
from tests.factory.projectors import projector_path
from tests.patience import PATIENCE_S, until

STANDIN = Path(__file__).with_name("standin.py")
SMALL = {"LEFTOFF_THREADS": "1", "LEFTOFF_RAM": "16", "LEFTOFF_DISK": "0", "LEFTOFF_SLOTS": "2"}
OWN = ("--port", "0", "--model", str(model_path("llama")), "--ctx", "1024", "--anyway")


class Done(NamedTuple):
    """The exit code of a command, and what it and the agent wrote."""

    returncode: int
    stdout: str
    stderr: str


@dataclass
class Launcher:
    """Where stand-ins of agents are on the PATH, and the folder in which they are started."""

    folder: Path
    output: pytest.CaptureFixture[str]

    def install(self, name: str) -> None:
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\nexec {sys.executable} {STANDIN} "$@"\n')
        path.chmod(0o755)

    def environment(self, **more: str) -> dict[str, str]:
        (self.folder / "tmp").mkdir(exist_ok=True)
        own = {"PATH": f"{self.folder / 'bin'}:/usr/bin:/bin", "HOME": str(self.folder), "PYTHONPATH": str(Path.cwd())}
        return own | SMALL | {"TOLD": str(self.folder / "told"), "TMPDIR": str(self.folder / "tmp")} | more

    def start(self, *words: str, **more: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "leftoff", "launch", *words]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment(**more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, **more: str) -> Done:
        """The command in this process, which need not be started for it; the agent and the server have their own."""
        with patch.dict(os.environ, self.environment(**more), clear=True), chdir(self.folder):
            code = main(["launch", *words])
        return Done(code, *self.output.readouterr())

    @property
    def told(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads((self.folder / "told").read_text())
        return told

    @property
    def left(self) -> list[Path]:
        """Of the temporary folders."""
        return [*(self.folder / "tmp").glob("leftoff-launch-*")]


@pytest.fixture
def launcher(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Launcher:
    launcher = Launcher(tmp_path, capfd)
    launcher.install("claude")
    return launcher


@pytest.fixture(scope="module")
def server() -> Iterator[Here]:
    with served("--alias", "one model", model=model_path("llama")) as server:
        yield server


def is_there(url: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(f"{url}/health", timeout=PATIENCE_S).status_code == 200
    return False


def test_a_server_is_started_for_the_agent_and_stopped_after_it(launcher: Launcher) -> None:
    done = launcher.run("claude", *OWN, "--", "--print", "-c", "Hello!", CODE="7", ANTHROPIC_API_KEY="a real one")
    assert done.returncode == 7, done.stderr
    told = launcher.told
    assert told["health"] == 200, "the agent could ask it"
    assert told["arguments"] == ["--print", "-c", "Hello!"]
    assert told["folder"] == str(launcher.folder)
    assert told["environment"]["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "1024"
    assert told["environment"]["ANTHROPIC_MODEL"] == model_path("llama").stem
    assert "ANTHROPIC_API_KEY" not in told["environment"]
    assert not is_there(told["environment"]["ANTHROPIC_BASE_URL"])
    assert launcher.left == []
    assert done.stdout == "", "it is the agent's"
    assert "starting a server at http://127.0.0.1:" in done.stderr
    assert "Claude Code needs a window of 65,536 tokens or more" in done.stderr


@pytest.mark.parametrize("name", CODING_AGENTS)
def test_a_server_that_runs_is_used_and_left_alone(name: str, launcher: Launcher, server: Here) -> None:
    launcher.install(name)
    done = launcher.run(name, "--url", server.url, "--anyway", "--", "last")
    assert done.returncode == 0, done.stderr
    told = launcher.told
    said = json.dumps([told["arguments"], told["files"], told["environment"]])
    assert server.url in said
    assert "one model" in said
    assert "1024" in said, "the window"
    assert told["arguments"][-1] == "last"
    assert bool(told["files"]) is bool(CODING_AGENTS[name].file)
    assert launcher.left == []
    assert is_there(server.url)


def test_an_agent_is_told_that_a_model_sees_and_which_others_there_are(launcher: Launcher) -> None:
    launcher.install("opencode")
    projector, others = projector_path("qwen3vl_merger", 64), (f"reader={model_path('llama')}", model_path("bert"))
    seer = f"seer={model_path('qwen35')}"
    with served(*map(str, others), "--mmproj", str(projector), model=seer) as server:
        done = launcher.run("opencode", "--url", server.url, "--anyway")
    assert done.returncode == 0, done.stderr
    settings = json.loads(launcher.told["environment"]["OPENCODE_CONFIG_CONTENT"])
    assert settings["model"] == settings["small_model"] == "leftoff/seer"
    assert settings["provider"]["leftoff"]["models"] == {
        "seer": {
            "limit": {"context": 1024, "output": 128},
            "modalities": {"input": ["text", "image"], "output": ["text"]},
        },
        "reader": {},  # not loaded: its window is not known
    }


def test_a_server_at_the_configured_address_is_found(launcher: Launcher, server: Here) -> None:
    (launcher.folder / "leftoff.toml").write_text(f"port = {httpx.URL(server.url).port}\n")
    done = launcher.run("claude", "--anyway")
    assert done.returncode == 0, done.stderr
    assert launcher.told["environment"]["ANTHROPIC_BASE_URL"] == server.url


def test_a_server_with_another_model_is_not_used(launcher: Launcher, server: Here) -> None:
    done = launcher.run("claude", "--url", server.url, "--model", "another.gguf")
    assert done.returncode == 1
    assert f"the server at {server.url} has one model, and not another" in done.stderr
    assert not (launcher.folder / "told").exists()


def test_a_window_that_is_too_small_is_refused_before_the_agent_starts(launcher: Launcher, server: Here) -> None:
    """With the flag that raises it, and what to know where the model was trained for less."""
    launcher.install("aider")
    told = "aider needs a window of 8,192 tokens or more, 1,000 of them for its own instructions, and"
    short = launcher.run("aider", "--url", server.url)
    assert short.returncode == 1
    assert f"{told} one model has 1,024" in short.stderr
    assert "start the server with --ctx 8192, or take another model: this one was trained for 4,096" in short.stderr
    own = launcher.run("aider", "--port", "0", "--ctx", "4096")
    assert own.returncode == 1
    assert f"{told} leftoff-tiny-q8_0 has 4,096" in own.stderr
    assert "give --ctx 8192. To start it all the same: --anyway" in own.stderr
    assert not (launcher.folder / "told").exists()
    assert launcher.left == []
    with served("--ctx", "8192") as large:
        enough = launcher.run("aider", "--url", large.url)
    assert enough.returncode == 0, enough.stderr
    assert "needs" not in enough.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])  # SIGTERM is what the second is turned into
def test_a_signal_ends_the_agent_and_the_server(number: signal.Signals, launcher: Launcher) -> None:
    with launcher.start("claude", *OWN, "--", "--stay") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n", process.stderr and process.stderr.read()
        process.send_signal(number)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + (signal.SIGTERM if number == signal.SIGHUP else number)
    assert not is_there(launcher.told["environment"]["ANTHROPIC_BASE_URL"])
    assert launcher.left == []


def test_the_server_ends_also_if_the_command_is_killed(launcher: Launcher) -> None:
    with launcher.start("claude", *OWN, "--", "--stay") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        url = launcher.told["environment"]["ANTHROPIC_BASE_URL"]
        assert is_there(url)
        process.kill()
        assert until(lambda: not is_there(url))
        os.kill(launcher.told["pid"], signal.SIGKILL)  # nobody else can


def test_an_agent_that_is_not_installed_is_told_how(launcher: Launcher) -> None:
    done = launcher.run("codex")
    assert done.returncode == 1
    assert done.stderr == "leftoff: Codex is not installed, there is no command codex: npm install -g @openai/codex\n"


def test_a_server_that_cannot_start_says_why(launcher: Launcher) -> None:
    broken = launcher.folder / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))
    done = launcher.run("claude", "--port", "0", "--model", str(broken))
    assert done.returncode == 1
    assert "the server did not start" in done.stderr
    assert "broken.gguf" in done.stderr
    assert launcher.left == []


def test_an_address_that_is_none_is_refused(launcher: Launcher) -> None:
    done = launcher.run("claude", "--url", "no address")
    assert done.returncode == 1
    assert "--url 'no address' is no address" in done.stderr
