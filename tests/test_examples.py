"""The programs in examples/ run as they stand there, against a real server with the model that comes with leftoff."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import Server, serving
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
TESTED = {"anthropic_messages", "embedded_session", "openai_chat", "prewarm", "two_agents"}
REUSED = re.compile(r"reused (\d+)")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """With one slot: what two agents reuse comes from the cache."""
    with serving("--slots", "1", "--ctx", "4096", model="") as running:
        assert running.url, running.log
        yield running


def run(name: str, server: Server | None = None) -> str:
    environment = os.environ | {"LEFTOFF_URL": server.url if server else "", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def reused(output: str) -> list[int]:
    return [int(number) for number in REUSED.findall(output)]


def test_every_example_is_tested_here() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == TESTED


def test_every_example_says_how_it_is_run() -> None:
    for path in EXAMPLES.glob("*.py"):
        assert f"python examples/{path.name}" in path.read_text()


def test_every_example_says_what_it_needs() -> None:
    for path in EXAMPLES.glob("*.py"):
        text = path.read_text()
        imported = {*re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE)} - sys.stdlib_module_names
        for package in imported:
            needed = "pip install ." if package == "leftoff" else f"pip install {package}"
            assert f"\n    {needed}\n" in text, f"{path.name}: {needed}"


def test_openai_chat(server: Server) -> None:
    output = run("openai_chat", server)
    assert "Anna" in output.splitlines()[-3], "the model remembers the name"
    first, second, third = reused(output)
    assert first < second < third


def test_anthropic_messages(server: Server) -> None:
    output = run("anthropic_messages", server)
    assert "get_weather({'city': 'Paris'})" in output
    read = [int(number) for number in re.findall(r"read (\d+)", output)]
    assert len(read) >= 2
    for before, computed, after in zip(reused(output), read, reused(output)[1:], strict=False):
        assert after >= before + computed, "what one step has read, the next reuses"


def test_embedded_session() -> None:
    output = run("embedded_session")
    assert "Your name is Anna" in output
    assert "Lisbon" in output.splitlines()[-3]
    first, *branches = reused(output)
    assert first == 0
    assert min(branches) > 0


def test_prewarm(server: Server) -> None:
    output = run("prewarm", server)
    (num_tokens,) = re.findall(r"prewarmed (\d+) tokens", output)
    assert reused(output) == [int(num_tokens)]


def test_two_agents(server: Server) -> None:
    output = run("two_agents", server)
    first, *others = reused(output)
    header = others[0]
    assert header > 400 > first, "the second agent finds the header that the first has read"
    assert min(others[1:]) > header, "each goes on with a conversation of its own"
