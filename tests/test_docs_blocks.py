"""Every block of code in the pages is run as it stands there, or says why it is not (`tests/pages.py`).

Commands of leftoff and programs run in this process, on small models, against a server on a free port instead of 8080.
What this machine may not have (Claude Code, Qwen Code, Open WebUI) is stood in for by a request to where its settings
lead, as it would make it.
"""

import io
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import httpx
import pytest

from lab.bench.__main__ import main as bench
from leftoff.cli.main import main
from tests.cli.here import Here, served
from tests.factory import model_path
from tests.pages import ADDRESS, PAGES, ROOT, Block, blocks_of
from tests.patience import PATIENCE_S

BLOCKS = [block for page in PAGES for block in blocks_of(page)]
RUN = [block for block in BLOCKS if not block.reason]
KINDS = ("sh", "json", "python", "toml", "text")
TARGETS = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXPECTED = {  # what a program with this text in it prints
    "import OpenAI": r"Anna.*\n.*Anna.* · reused [1-9]\d*\n",
    "import Session": r"Anna.* · reused [1-9]\d* of",
}
ENCODERS = {"embed": "bert", "rank": "bert-rank"}  # the small models that files of these names stand for
MESSAGES = [{"role": "user", "content": "Hello!"}]


@dataclass(frozen=True)
class Place:
    """Where commands run: a folder that is also their home, and the server that they talk to."""

    folder: Path
    server: Here

    def run(self, command: list[str], folder: Path | None = None) -> str:
        done = subprocess.run(
            command,
            cwd=folder or self.folder,
            env=os.environ | {"HOME": str(self.folder)},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def leftoff(self, command: str, *more: str, given: str = "") -> str:
        """What a command of leftoff prints."""
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as printed:
            patch.chdir(self.folder)
            patch.setenv("HOME", str(self.folder))
            patch.setattr("sys.stdin", io.StringIO(given))
            assert main([*shlex.split(command)[1:], *more]) == 0
        return printed.getvalue()

    def here(self, text: str) -> str:
        return text.replace(ADDRESS, self.server.url)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The server is that of `leftoff serve`, with the model that comes with it."""
    with served("--ctx", "4096", "--disk", "0", model="") as server:
        yield Place(tmp_path_factory.mktemp("home"), server)


@pytest.fixture(autouse=True)
def _calm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tests run side by side: each has a cache of its own, and one thread."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LEFTOFF_THREADS", "1")


def settings_of(command: str) -> dict[str, str]:
    """The environment variables before a command."""
    return dict(word.split("=", 1) for word in shlex.split(command) if re.match(r"[A-Z_]+=", word))


def make(command: str, place: Place) -> None:
    """That there is such a target: the targets themselves are what runs these tests, or take long."""
    targets = [word for word in command.split()[1:] if "=" not in word]
    assert {*targets} <= {*TARGETS}
    place.run(["make", "--dry-run", *command.split()[1:]], folder=ROOT)


def venv(command: str, place: Place) -> None:
    line = command.replace("python3", sys.executable).replace("venv .", "venv --without-pip .")
    python = place.run(["sh", "-c", f"{line} && command -v python"])
    assert Path(python.strip()) == place.folder / ".venv" / "bin" / "python"


def pip_install(command: str, _place: Place) -> None:
    """That there are such a package and such extras: tests/test_wheel.py and `make release-check` install it."""
    (what,) = shlex.split(command)[2:]
    name, extras = re.fullmatch(r"(leftoff|\.)(?:\[(.*)\])?", what).groups("")  # type: ignore[union-attr]
    assert name in (".", PROJECT["name"])
    assert {*filter(None, extras.split(","))} <= PROJECT["optional-dependencies"].keys()


def serve(command: str, place: Place) -> None:
    """With small models in the place of those that are named, each loaded or found."""
    words = [word.replace("~", str(place.folder)) for word in shlex.split(command.partition(" 2>")[0])[2:]]
    names = [word.rpartition("=")[2] for word in words if word.endswith(".gguf")]
    (place.folder / "models").mkdir(exist_ok=True)
    for word, name in zip((word for word in words if word.endswith(".gguf")), names, strict=True):
        file = place.folder / name
        if not file.exists():
            file.symlink_to(model_path(ENCODERS.get(word.partition("=")[0], "qwen35")))
    if "--models-dir" in words and not (file := place.folder / "models" / "some.gguf").exists():
        file.symlink_to(model_path("qwen35"))
    first, rest = (words[0], words[1:]) if words and not words[0].startswith("-") else ("", words)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place.folder)
        with served(*rest, model=first) as server:
            assert httpx.get(f"{server.url}/health").json()["status"] == "ok"
            assert len(httpx.get(f"{server.url}/v1/models").json()["data"]) >= max(1, len(names))


def models(command: str, place: Place) -> None:
    assert "qwen3.6-27b" in place.leftoff(command)


def chat(command: str, place: Place) -> None:
    output = place.leftoff(place.here(command), given="Hello!\nThank you!\n")
    assert re.search(r"^reused [1-9][\d,]* · computed [\d,]+ · first token after", output, re.MULTILINE)


def doctor(command: str, place: Place) -> None:
    if not (file := place.folder / "model.gguf").exists():
        file.symlink_to(model_path("qwen35"))
    assert "hybrid" in place.leftoff(command)


def cache(command: str, place: Place) -> None:
    place.leftoff(command, "--cache-dir", str(place.folder))


def helped(command: str, _place: Place) -> None:
    """That there is such a command with such flags; the tests of its module run it."""
    words = [*takewhile(lambda word: word != "--", shlex.split(command))]
    shown = help_of(*words[1:2])
    actions = [word for word in words[2:3] if word in re.findall(r"^ {2,4}(\w+)  ", shown, re.MULTILINE)]
    more = help_of(*words[1:3]) if actions else ""
    assert {word for word in words[2:] if word.startswith("--") and word not in shown + more} == set()


def help_of(*command: str) -> str:
    with redirect_stdout(io.StringIO()) as shown, pytest.raises(SystemExit):
        main([*command, "--help"])
    return shown.getvalue()


def play(command: str, _place: Place) -> None:
    """The shortest workload stands for all of them."""
    words = [*shlex.split(command)[3:], str(model_path("llama")), "--workload", "regenerate", "--threads", "1"]
    with redirect_stdout(io.StringIO()) as printed:
        assert bench(words) == 0
    assert "llama-server" in printed.getvalue()


def cluster_key(command: str, place: Place) -> None:
    place.leftoff(command)
    assert (place.folder / shlex.split(command)[-1]).stat().st_mode & 0o77 == 0


def curl(command: str, place: Place) -> None:
    """The examples of the HTTP API, of which one is of an error, are compared with their answers by test_docs.py."""
    answer = json.loads(place.run(["curl", "-s", *shlex.split(place.here(command))[1:]]))
    assert "error" not in answer or "n=many" in command, answer


def claude_code(command: str, place: Place) -> None:
    settings = settings_of(place.here(command))
    reply = httpx.post(
        f"{settings['ANTHROPIC_BASE_URL']}/v1/messages?beta=true",
        headers={"Authorization": f"Bearer {settings['ANTHROPIC_AUTH_TOKEN']}", "anthropic-version": "2023-06-01"},
        json={
            "model": settings.get("ANTHROPIC_MODEL", "claude-sonnet"),
            "max_tokens": 8,
            "stream": True,
            "system": [{"type": "text", "text": "x-anthropic-billing-header: cch=12345;\nBe brief."}],
            "messages": MESSAGES,
        },
        timeout=PATIENCE_S,
    )
    assert reply.status_code == 200, reply.text
    assert re.findall(r"^event: (message_\w+)$", reply.text, re.MULTILINE)[0::2] == ["message_start", "message_stop"]


def openai_client(command: str, place: Place) -> None:
    settings = settings_of(place.here(command))
    url = settings.get("OPENAI_BASE_URL") or settings["OPENAI_API_BASE_URL"]
    headers = {"Authorization": f"Bearer {settings['OPENAI_API_KEY']}"}
    assert httpx.get(f"{url}/models", headers=headers).json()["data"][0]["id"]
    body = {"model": settings.get("OPENAI_MODEL", "local"), "messages": MESSAGES, "max_tokens": 8, "stream": True}
    reply = httpx.post(f"{url}/chat/completions", headers=headers, json=body, timeout=PATIENCE_S)
    assert reply.status_code == 200, reply.text
    assert reply.text.strip().endswith("data: [DONE]")


def stats(command: str, place: Place) -> None:
    assert "spared since the start" in place.leftoff(command, "--url", place.server.url)


RUNNERS: dict[str, Callable[[str, Place], None]] = {
    "make ": make,
    "python3 -m venv ": venv,
    "pip install ": pip_install,
    "leftoff serve": serve,
    "leftoff models": models,
    "leftoff launch": helped,
    "leftoff chat": chat,
    "leftoff doctor": doctor,
    "leftoff cache": cache,
    "leftoff demo": helped,
    "leftoff engine": helped,
    "leftoff prewarm": helped,
    "leftoff stats": stats,
    "leftoff cluster key": cluster_key,
    "python -m lab.bench": play,
    "curl ": curl,
    "ANTHROPIC_BASE_URL=": claude_code,
    "OPENAI_BASE_URL=": openai_client,
    "OPENAI_API_BASE_URL=": openai_client,
}


def runner_of(command: str) -> Callable[[str, Place], None] | None:
    return next((runner for beginning, runner in RUNNERS.items() if command.startswith(beginning)), None)


def unclear(blocks: list[Block]) -> list[str]:
    """Blocks that are neither run nor say why not, and texts that hide commands."""
    found = [f"{block}: {block.kind or 'no kind'}" for block in blocks if not block.reason and block.kind not in KINDS]
    for block in blocks:
        if not block.reason and block.kind == "sh":
            found += [f"{block}: {command}" for command in block.commands if not runner_of(command)]
        if block.kind == "text":
            found += [f"{block}: {line}" for line in block.commands if runner_of(line) and "·" not in line]
    return found


def test_every_block_is_run_or_says_why_it_is_not() -> None:
    assert unclear(BLOCKS) == []
    assert all(len(block.reason.split()) > 3 for block in BLOCKS if block.reason)


def test_every_runner_has_a_command() -> None:
    used = {runner_of(command) for block in RUN if block.kind == "sh" for command in block.commands}
    assert {*RUNNERS.values()} == used - {None}


def test_a_block_that_nothing_runs_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    fence = "```"
    page.write_text(
        f"{fence}sh\nunheard of\n{fence}\n\n<!-- not run: it takes a moon -->\n{fence}sh\nunheard of\n{fence}\n\n"
        f"{fence}text\nmake test\n{fence}\n\n{fence}\nmake test\n{fence}\n"
    )
    assert unclear(blocks_of(page)) == ["page.md:14: no kind", "page.md:1: unheard of", "page.md:10: make test"]
    assert [block.reason for block in blocks_of(page)] == ["", "it takes a moon", "", ""]


@pytest.mark.parametrize("block", [block for block in RUN if block.kind == "sh"], ids=str)
def test_commands(block: Block, place: Place) -> None:
    for command in block.commands:
        runner = runner_of(command)
        assert runner, command
        runner(command, place)


@pytest.mark.parametrize("block", [block for block in RUN if block.kind == "python"], ids=str)
def test_programs(block: Block, place: Place) -> None:
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(place.here(block.text), str(block), "exec"), {"__name__": "program"})
    for part, expected in EXPECTED.items():
        assert part not in block.text or re.search(expected, printed.getvalue())


@pytest.mark.parametrize("block", [block for block in RUN if block.kind in ("json", "toml")], ids=str)
def test_files(block: Block) -> None:
    assert (json.loads if block.kind == "json" else tomllib.loads)(block.text)


def test_ollama_clients_find_what_they_ask_first(place: Place) -> None:
    (host,) = re.findall(r"OLLAMA_HOST=([\d.:]+)", (ROOT / "docs" / "connect.md").read_text())
    assert f"http://{host}" == ADDRESS
    assert httpx.get(f"{place.server.url}/api/version").json()["version"]
