"""What the README says works as it stands there: every command and every example is run; `test_docs.py` has its links.

A server listens on a free port instead of 8080. What this machine may not have (Claude Code, Open WebUI, OpenCode) is
stood in for by a request to where its settings lead, as it would make it.
"""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from leftoff.engine.install.packages import PACKAGES
from leftoff.hub import Reference, parse_reference
from leftoff.scenes import SCENES
from tests.cli.running import Server, serving
from tests.factory import model_path
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
COMMANDS = [line.split(" #")[0].strip() for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]
PYTHON = [text for kind, text in BLOCKS if kind == "python"]
TARGETS = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
ADDRESS = "http://127.0.0.1:8080"


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run side by side, and threads that wait for each other's cores slow all of them down."""
    monkeypatch.setenv("LEFTOFF_THREADS", "1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a `model.gguf` in it, as the examples assume."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "model.gguf").symlink_to(model_path("qwen35"))
    return folder


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """The one that the examples talk to: that of `leftoff serve`, with the model that comes with it."""
    with serving(model="") as running:
        assert running.url, running.log
        yield running


def run(command: list[str], folder: Path, given: str = "") -> str:
    done = subprocess.run(
        command, cwd=folder, input=given, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def leftoff(command: str) -> list[str]:
    return [sys.executable, "-m", *shlex.split(command)]


def python(command: str) -> list[str]:
    return [sys.executable, *shlex.split(command)[1:]]


def commands(beginning: str) -> list[str]:
    found = [command for command in COMMANDS if command.startswith(beginning)]
    assert found, f"the README has no `{beginning}`: is its test still needed?"
    return found


def settings_of(command: str) -> dict[str, str]:
    """The environment variables before a command."""
    return dict(word.split("=", 1) for word in shlex.split(command) if "=" in word)


def test_every_command_is_one_that_is_tested_here() -> None:
    tested = (
        *("make ", "python3 -m venv ", "pip install .", "curl ", "leftoff demo", "leftoff chat", "leftoff serve"),
        *(
            "leftoff doctor",
            "leftoff cache",
            "leftoff engine",
            "leftoff prewarm",
            "python -m lab.",
            "ANTHROPIC_BASE_URL=",
            "OPENAI_API_BASE_URL=",
            "OPENAI_BASE_URL=",
        ),
    )
    assert [command for command in COMMANDS if not command.startswith(tested)] == []


def test_make_has_these_targets() -> None:
    for command in commands("make "):
        targets = command.split()[1:]
        assert {*targets} <= {*TARGETS}
        run(["make", "--dry-run", *targets], ROOT)


def test_an_environment_is_made_and_entered(tmp_path: Path) -> None:
    for command in commands("python3 -m venv"):
        line = command.replace("python3", sys.executable).replace("venv .", "venv --without-pip .")
        python = run(["sh", "-c", f"{line} && command -v python"], tmp_path)
        assert Path(python.strip()) == tmp_path / ".venv" / "bin" / "python"


def test_pip_installs_it() -> None:
    """As far as pip goes without a network; tests/test_wheel.py goes to the end."""
    for command in commands("pip install ."):
        run([sys.executable, "-m", *shlex.split(command), "--dry-run", "--no-deps", "--no-build-isolation"], ROOT)


def test_the_demo_shown_is_the_one_that_is_played() -> None:
    """tests/cli/test_demo.py plays it."""
    (shown,) = (text for kind, text in BLOCKS if not kind and "leftoff demo" in text)
    for scene in SCENES:
        assert scene.title in shown
        assert scene.story in shown
        for step in scene.steps:
            assert f"{step.label} · {step.question}" in shown
    assert "The cache helped in every scene." in shown


def test_prewarm_has_the_flag(tmp_path: Path) -> None:
    """tests/cli/test_prewarm.py runs it against a server."""
    for command in commands("leftoff prewarm"):
        assert command.split()[2] in run([*leftoff(command), "--help"], tmp_path)


def test_doctor(folder: Path) -> None:
    for command in commands("leftoff doctor"):
        assert "hybrid" in run(leftoff(command), folder)


def test_chat(folder: Path, server: Server) -> None:
    for command in commands("leftoff chat"):
        output = run(leftoff(command.replace(ADDRESS, server.url)), folder, "Hello!\nThank you!\n")
        assert re.search(r"^reused [1-9][\d,]* · computed [\d,]+ · first token after", output, re.MULTILINE)


def test_cache(folder: Path) -> None:
    for command in commands("leftoff cache"):
        run([*leftoff(command), "--cache-dir", str(folder)], folder)


def test_engine(folder: Path) -> None:
    """As far as it goes without a network; tests/cli/test_engine.py installs one from a mirror."""
    for command in commands("leftoff engine"):
        assert "leftoff engine" in run([*leftoff(command), "--help"], folder)
    kinds = {package.name for package in PACKAGES} | {"cuda"}
    assert {*re.findall(r"`leftoff engine install (\w+)`", README)} <= kinds


def test_bench() -> None:
    """The shortest workload stands for all of them."""
    for command in commands("python -m lab.bench"):
        assert "llama-server" in run([*python(command), "--workload", "regenerate", "--threads", "1"], ROOT)


def test_simulate() -> None:
    for command in commands("python -m lab.simulate"):
        assert "optimum" in run([*python(command), "--ram", "32"], ROOT)


def test_ollama_clients_find_what_they_ask_first(server: Server) -> None:
    (host,) = re.findall(r"OLLAMA_HOST=([\d.:]+)", README)
    assert f"http://{host}" == ADDRESS
    assert httpx.get(f"{server.url}/api/version").json()["version"]


def test_serve(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for command in commands("leftoff serve"):
        (model,) = command.split()[2:] or [""]
        with serving(model=model) as running:
            assert httpx.get(f"{running.url}/health").json()["status"] == "ok", running.log
    assert (
        f"| `--port` * |  | `LEFTOFF_PORT` | `{ADDRESS.rpartition(':')[2]}` |"
        in (ROOT / "docs/settings.md").read_text()
    )


def test_a_model_of_the_hub_is_named_like_this() -> None:
    (name,) = re.findall(r"`leftoff serve (org/\S+)`", README)
    assert parse_reference(name) == Reference("org/repo", "Q4_K_M")


def test_curl(folder: Path, server: Server) -> None:
    for command in commands("curl "):
        reply = json.loads(run(["curl", "-s", *shlex.split(command.replace(ADDRESS, server.url))[1:]], folder))
        assert reply["choices"][0]["message"]["content"]


def test_the_settings_for_claude_code_lead_to_a_server_that_answers_it(server: Server) -> None:
    (command,) = commands("ANTHROPIC_BASE_URL=")
    settings = settings_of(command.replace(ADDRESS, server.url))
    reply = httpx.post(
        f"{settings['ANTHROPIC_BASE_URL']}/v1/messages?beta=true",
        headers={"Authorization": f"Bearer {settings['ANTHROPIC_AUTH_TOKEN']}", "anthropic-version": "2023-06-01"},
        json={
            "model": settings["ANTHROPIC_MODEL"],
            "max_tokens": 8,
            "stream": True,
            "system": [{"type": "text", "text": "x-anthropic-billing-header: cch=12345;\nBe brief."}],
            "messages": [{"role": "user", "content": "Hello!"}],
        },
        timeout=PATIENCE_S,
    )
    assert reply.status_code == 200, reply.text
    assert re.findall(r"^event: (message_\w+)$", reply.text, re.MULTILINE)[0::2] == ["message_start", "message_stop"]


def test_the_settings_for_open_webui_lead_to_a_list_of_models(server: Server) -> None:
    (command,) = commands("OPENAI_API_BASE_URL=")
    settings = settings_of(command.replace(ADDRESS, server.url))
    headers = {"Authorization": f"Bearer {settings['OPENAI_API_KEY']}"}
    models = httpx.get(f"{settings['OPENAI_API_BASE_URL']}/models", headers=headers).json()
    assert models["object"] == "list"
    assert models["data"][0]["id"]


def test_the_settings_for_opencode_lead_to_chat_completions(server: Server) -> None:
    (text,) = (text for kind, text in BLOCKS if kind == "json" and '"npm"' in text)
    settings = json.loads(text.replace(ADDRESS, server.url))
    provider, _, model = settings["model"].partition("/")
    options = settings["provider"][provider]["options"]
    assert model in settings["provider"][provider]["models"]
    body = {"model": model, "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 8, "stream": True}
    headers = {"Authorization": f"Bearer {options['apiKey']}"}
    reply = httpx.post(f"{options['baseURL']}/chat/completions", headers=headers, json=body, timeout=PATIENCE_S)
    assert reply.status_code == 200, reply.text
    assert reply.text.strip().endswith("data: [DONE]")


def test_the_example_for_the_openai_sdk(folder: Path, server: Server) -> None:
    (example,) = (text for text in PYTHON if "openai" in text)
    output = run([sys.executable, "-c", example.replace(ADDRESS, server.url)], folder)
    first, second = output.splitlines()
    assert "Anna" in first
    assert re.search(r"Anna.* · reused [1-9]\d*$", second)


def test_the_example_without_a_server(folder: Path) -> None:
    (example,) = (text for text in PYTHON if "Session" in text)
    assert re.search(r"Anna.* · reused [1-9]\d* of", run([sys.executable, "-c", example], folder))


def test_the_makefile_runs_what_ci_runs() -> None:
    assert "make lint test" in (ROOT / ".ci" / "run").read_text()
    assert "make lint test" in README


def test_the_tests_that_stand_beside_promises_are_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)", (ROOT / "SECURITY.md").read_text())
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).exists()] == []
