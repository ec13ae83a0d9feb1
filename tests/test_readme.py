"""What the README says works as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.factory import model_path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
COMMANDS = [line.split("#")[0].strip() for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]
TARGETS = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a `model.gguf` in it, as the examples assume."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "model.gguf").symlink_to(model_path("qwen35"))
    return folder


def run(command: list[str], folder: Path, given: str = "") -> str:
    done = subprocess.run(command, cwd=folder, input=given, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def leftoff(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "leftoff", *arguments]


def test_the_commands_are_the_ones_tested_here() -> None:
    """`serve` runs until it is stopped: tests/cli starts and stops it."""
    assert [command for command in COMMANDS if command.startswith(".venv/bin/leftoff")] == [
        ".venv/bin/leftoff doctor model.gguf",
        ".venv/bin/leftoff serve model.gguf",
        ".venv/bin/leftoff chat model.gguf",
    ]
    for command in COMMANDS:
        if command.startswith("make"):
            assert set(command.split()[1:]) <= set(TARGETS)


def test_doctor(folder: Path) -> None:
    assert "hybrid" in run(leftoff("doctor", "model.gguf"), folder)


def test_chat(folder: Path) -> None:
    assert "reused" in run(leftoff("chat", "model.gguf", "--max-tokens", "5"), folder, "Hello!\nAgain!\n")


def test_the_session_example(folder: Path) -> None:
    (example,) = (text for kind, text in BLOCKS if kind == "python")
    assert re.search(r"· reused [1-9]\d* of", run([sys.executable, "-c", example], folder))


def test_the_makefile_runs_what_ci_runs() -> None:
    assert "make lint test" in (ROOT / ".ci" / "run").read_text()
    assert "make lint test" in README


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target
