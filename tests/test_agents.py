"""What agents are told: in a shell, in TOML and in JSON, whatever a model is called."""

import json
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from leftoff.agents import CODING_AGENTS, Agent, Connection, agents_for, cramped_agents

ODD = Connection("http://127.0.0.1:8080", 'it\'s "a" model', 65_536, "k e'y")
LINES = [agent for agent in CODING_AGENTS.values() if not agent.file]
PROGRAM = """#!/usr/bin/env python3
import json, os, sys
print(json.dumps([dict(os.environ), sys.argv[1:]]))
"""


def run(line: str, name: str, folder: Path) -> tuple[Mapping[str, str], list[str]]:
    (folder / name).write_text(PROGRAM)
    (folder / name).chmod(0o755)
    environment = {"PATH": f"{folder}:/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", line], env=environment, capture_output=True, text=True, check=True)
    variables, arguments = json.loads(done.stdout)
    return variables, arguments


@pytest.mark.parametrize("agent", LINES, ids=lambda agent: agent.name)
def test_a_shell_understands_the_line(agent: Agent, tmp_path: Path) -> None:
    variables, arguments = run(agent.line(ODD), agent.name, tmp_path)
    told = agent.tell(ODD, "")
    assert dict(told.environment).items() <= variables.items()
    assert tuple(arguments) == told.arguments


@pytest.mark.parametrize("agent", CODING_AGENTS.values(), ids=lambda agent: agent.name)
def test_a_line_for_an_agent_with_a_file_launches_it(agent: Agent, tmp_path: Path) -> None:
    if agent.file:
        _, arguments = run(agent.line(ODD), "leftoff", tmp_path)
        assert arguments == ["launch", agent.name, "--url", ODD.url, "--model", ODD.model, "--api-key", ODD.key]


def test_codex_reads_its_values_as_toml() -> None:
    told = CODING_AGENTS["codex"].tell(ODD, "")
    assert told.arguments[::2] == ("-c",) * 4
    values = tomllib.loads("\n".join(told.arguments[1::2]))
    provider = {"name": "leftoff", "base_url": f"{ODD.url}/v1", "wire_api": "responses", "env_key": "LEFTOFF_API_KEY"}
    assert values == {
        "model": ODD.model,
        "model_provider": "leftoff",
        "model_providers": {"leftoff": provider},
        "model_context_window": ODD.window,
    }
    assert told.environment == {"LEFTOFF_API_KEY": ODD.key}


@pytest.mark.parametrize("agent", CODING_AGENTS.values(), ids=lambda agent: agent.name)
def test_every_agent_is_told_all_it_needs(agent: Agent) -> None:
    told = agent.tell(ODD, f"/folder/{agent.file}")
    said = json.dumps([*told.environment.values(), *told.arguments, told.file]).replace("\\", "")
    for part in (ODD.url, 'it\'s "a" model', str(ODD.window), ODD.key):
        assert part in said, part
    assert bool(told.file) is bool(agent.file)
    assert not agent.file or "/folder" in said
    if agent.file.endswith(".json"):
        json.loads(told.file)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("opencode", '"image"'),
        ("qwen", '"image": true'),
        ("pi", '"image"'),
        ("crush", '"supports_attachments": true'),
        ("aider", '"supports_vision": true'),
    ],
)
def test_agents_that_send_images_only_to_models_that_see_are_told_so(name: str, word: str) -> None:
    def said(*, sees: bool) -> str:
        told = CODING_AGENTS[name].tell(replace(ODD, sees=sees), "file")
        return " ".join([*told.environment.values(), told.file])

    assert word in said(sees=True)
    assert word not in said(sees=False)


def test_an_agent_is_offered_where_it_can_work() -> None:
    assert [agent.name for agent in agents_for(8_192)] == ["aider"]
    assert cramped_agents(65_536) == "a window of 65,536 tokens is too small for qwen"
    assert cramped_agents(81_920) == ""
