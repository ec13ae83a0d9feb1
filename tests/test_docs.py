"""The pages say what is so: the HTTP examples are run on a real server, and every file, flag and link is there."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from leftoff.cache.report import Reason
from leftoff.chat.formats.parser import Output
from leftoff.chat.formats.parts import Call
from leftoff.chat.formats.tagged import TaggedFormat
from leftoff.host.build import open_host
from leftoff.server import app
from leftoff.server.server import serving as serving_host
from leftoff.types import ReasoningTags
from tests.chat.formats.forms import TOOL, read
from tests.cli.here import Here, served
from tests.pages import ADDRESS, PAGES, ROOT, blocks_of
from tests.patience import PATIENCE_S
from tests.server.fixtures import settings
from tests.test_layers import ORDER

HTTP_API = (ROOT / "docs" / "http-api.md").read_text()
EXAMPLES = re.findall(r"^```sh\n((?:curl [^\n]*\n)+)```\n\n```json\n(.*?)^```", HTTP_API, re.DOTALL | re.MULTILINE)
# Of commands other than `leftoff serve`, and of llama-server.
OTHER_FLAGS = {
    "--against",
    "--anyway",
    "--json",
    "--markdown",
    "--open",
    "--prefix-match-unit",
    "--reasoning",
    "--rounds",
    "--slot-save-path",
    "--url",
    "--gpus",
}
FREE_KEYS = {"reasons", "origins"}  # objects whose keys are data
FOLDERS = ("leftoff", "lab", "tests", "training", "examples", "docs", "deploy", ".github")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    """`leftoff serve` with what it has by default: four slots, and a disk."""
    folder = str(tmp_path_factory.mktemp("cache"))
    with served("--slots", "4", "--ctx", "4096", "--disk", "64", "--cache-dir", folder, model="") as server:
        yield server


def shape(value: object, is_free: bool = False) -> Any:  # noqa: ANN401
    """The keys and types of an answer; of a list, those of its first element."""
    if isinstance(value, dict):
        inner = {key: shape(item, key in FREE_KEYS) for key, item in value.items()}
        return sorted({*inner.values()}) if is_free else inner
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    return "number" if type(value) in (int, float) else type(value).__name__


def curl(command: str, server: Here) -> str:
    words = shlex.split(command.replace(ADDRESS, server.url))
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    return done.stdout


def test_the_examples_of_the_http_api_answer_as_they_are_shown(server: Here) -> None:
    """In their order: later ones show what the earlier have left."""
    assert len(EXAMPLES) == HTTP_API.count("\n```json\n") >= 10
    for commands, shown in EXAMPLES:
        for command in commands.splitlines():
            answer = curl(command, server)
        assert shape(json.loads(answer)) == shape(json.loads(shown)), command


def test_every_route_is_in_the_table(server: Here) -> None:
    rows = re.findall(r"^\| ([A-Z, ]+) \| (.*?) \|", HTTP_API, re.MULTILINE)
    shown = {(method, path) for names, paths in rows for method in names.split(", ") for path in named(paths)}
    described = httpx.get(f"{server.url}/openapi.json").json()["paths"]
    assert shown == {(method.upper(), path) for path, methods in described.items() for method in methods}


def named(text: str) -> list[str]:
    return re.findall(r"`(/[^`]*)`", text)


def test_every_metric_is_in_the_table(server: Here) -> None:
    rows = re.findall(r"^\| `([\w:]+)` \| (counter|gauge|histogram) \|", HTTP_API, re.MULTILINE)
    families = [*text_string_to_metric_families(httpx.get(f"{server.url}/metrics").text)]
    assert dict(rows) == {f"{f.name}{'_total' if f.type == 'counter' else ''}": f.type for f in families}


def test_every_reason_is_in_the_table() -> None:
    (table,) = re.findall(r"\| reason \|.*?\n\n", HTTP_API, re.DOTALL)
    assert re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE) == [reason.value for reason in Reason]


def test_the_props_are_reached(server: Here) -> None:
    assert "params" in httpx.get(f"{server.url}/props").json()["default_generation_settings"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text()):
        path = page.parent / target if target else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), f"{target}#{anchor}"


def test_the_index_leads_to_every_page_in_four_parts() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    assert re.findall(r"^## (.*)$", index, re.MULTILINE) == ["Start", "Use", "Run for others", "Understand"]
    assert {path.name for path in (ROOT / "docs").glob("*.md")} == {"README.md", *re.findall(r"\]\(([^/)]+)\)", index)}
    assert "](docs/README.md)" in (ROOT / "README.md").read_text()


def anchors(page: Path) -> set[str]:
    """As GitHub makes them from the titles."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_files_it_names_are_there(page: Path) -> None:
    """A whole path, or the end of one as far as it is clear: `plan.py`, `cache/plan.py`. NAME stands for a new file."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    found = re.findall(r"`([\w./-]+(?:\.py|\.md|\.yml|\.toml|/)|(?:leftoff|lab|tests)/[\w./-]+)`", text)
    assert [name for name in found if "NAME" not in name and not is_there(name)] == []


def is_there(name: str) -> bool:
    if (ROOT / name).exists():
        return True
    paths = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
    return any(path.as_posix().endswith(f"/{name.rstrip('/')}") for path in paths)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_modules_it_runs_are_there(page: Path) -> None:
    for name in re.findall(r"python -m ((?:leftoff|lab|tests|training)[\w.]*)", page.read_text()):
        path = ROOT / name.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_flags_it_names_are_there(page: Path) -> None:
    settings = (ROOT / "docs" / "settings.md").read_text()
    flags = {flag.replace("--no-", "--") for flag in re.findall(r"`(--[a-z-]+)`", page.read_text())}
    assert {flag for flag in flags if f"`{flag}`" not in settings} <= OTHER_FLAGS


def sketch(page: str) -> dict[str, Any]:
    """What the Python in a page defines."""
    (source,) = (block.text for block in blocks_of(ROOT / "docs" / page) if block.kind == "python" and not block.reason)
    found: dict[str, Any] = {"__name__": "sketch"}
    exec(compile(source, page, "exec"), found)
    return found


def test_the_output_format_that_is_sketched_parses_its_own_syntax() -> None:
    output_format = TaggedFormat("bracket", sketch("add-an-output-format.md")["BracketCalls"](), ReasoningTags())
    syntax = output_format.syntax
    arguments = '{"place": "harbour"}'
    written = f"{syntax.before_name}look_up{syntax.after_name}{arguments}{syntax.after_arguments}"
    said = read(Output(output_format, [TOOL]), f"Let me see.\n{written}{syntax.between}{written}")
    assert said.content.strip() == "Let me see."
    assert said.calls == (Call("look_up", arguments),) * 2
    assert read(Output(output_format, [TOOL]), "[[no call").content == "[[no call"


def test_the_dialect_that_is_sketched_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    say, those_there = sketch("add-a-dialect.md")["Say"], app.dialects
    monkeypatch.setattr(app, "dialects", lambda hosts, settings: [*those_there(hosts, settings), say(hosts)])
    with open_host(settings()) as host, serving_host(host) as url:
        body = {"text": "where does the road end", "max_tokens": 4, "temperature": 0}
        first = httpx.post(f"{url}/say", json=body, timeout=PATIENCE_S).json()
        second = httpx.post(f"{url}/say", json=body, timeout=PATIENCE_S).json()
        lines = httpx.post(f"{url}/say", json=body | {"stream": True}, timeout=PATIENCE_S).text.splitlines()
        refused = httpx.post(f"{url}/say", json={"max_tokens": 4}, timeout=PATIENCE_S).json()
    assert first["reused"] == 0 < second["reused"]
    assert first["said"] == second["said"] == "".join(json.loads(line)["said"] for line in lines)
    assert "text" in refused["error"]["message"]


def test_the_architecture_is_short_and_has_the_ten_sentences_of_the_cache() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert len(text.splitlines()) <= 80
    section = text.partition("## The cache in ten sentences")[2].partition("\n## ")[0]
    assert len(re.findall(r"^\d+\. .*\.$", section, re.MULTILINE)) == 10
    named = re.findall(r"`(\w+\.py)`", section)
    assert [name for name in named if not (ROOT / "leftoff/cache" / name).exists()] == []


def test_the_layout_of_the_architecture_is_the_order_of_the_layers() -> None:
    layout = (ROOT / "ARCHITECTURE.md").read_text().partition("## Layout")[2].partition("\n## ")[0]
    assert re.findall(r"`leftoff/(\w+)(?:\.py|/)`", layout) == [layer for layer in ORDER if layer != "__main__"]
