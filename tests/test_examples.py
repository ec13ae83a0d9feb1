"""The programs in examples/ run as they stand there, against a real server with the model that comes with leftoff."""

import io
import re
import runpy
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from tests.cli.here import Here, served

EXAMPLES = Path(__file__).parents[1] / "examples"
TESTED = {"anthropic_messages", "embedded_session", "openai_chat", "prewarm", "two_agents"}
REUSED = re.compile(r"reused (\d+)")


@pytest.fixture(scope="module")
def server() -> Iterator[Here]:
    """With one slot: what two agents reuse comes from the cache."""
    with served("--slots", "1", "--ctx", "4096", model="") as server:
        yield server


def run(name: str, server: Here | None = None) -> str:
    path = str(EXAMPLES / f"{name}.py")
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as printed:
        patch.setenv("LEFTOFF_URL", server.url if server else "")
        patch.setattr("sys.argv", [path])
        runpy.run_path(path, run_name="__main__")
    return printed.getvalue()


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


def test_openai_chat(server: Here) -> None:
    output = run("openai_chat", server)
    assert "Anna" in output.splitlines()[-3], "the model remembers the name"
    first, second, third = reused(output)
    assert first < second < third


def test_anthropic_messages(server: Here) -> None:
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


def test_prewarm(server: Here) -> None:
    output = run("prewarm", server)
    (num_tokens,) = re.findall(r"prewarmed (\d+) tokens", output)
    assert reused(output) == [int(num_tokens)]


def test_two_agents(server: Here) -> None:
    output = run("two_agents", server)
    first, *others = reused(output)
    header = others[0]
    assert header > 400 > first, "the second agent finds the header that the first has read"
    assert min(others[1:]) > header, "each goes on with a conversation of its own"
