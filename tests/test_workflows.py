"""What runs elsewhere agrees with what runs here: workflows, commit hooks, issue forms, versions and pins."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import leftoff

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = ROOT / ".github" / "workflows"
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text()
PAGES = [*sorted(WORKFLOWS.glob("*.yml")), *FORMS, ROOT / ".pre-commit-config.yaml"]


def read(path: Path) -> dict[str, Any]:
    content = yaml.safe_load(path.read_text())
    assert isinstance(content, dict)
    return content


def steps(workflow: str, job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read(WORKFLOWS / workflow)["jobs"][job]["steps"]
    return found


def commands(workflow: str, job: str) -> list[str]:
    return [step["run"] for step in steps(workflow, job) if "run" in step]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_it_is_yaml(path: Path) -> None:
    assert read(path)


def test_ci_runs_on_every_python_and_system_that_is_promised() -> None:
    matrix = read(WORKFLOWS / "ci.yml")["jobs"]["test"]["strategy"]["matrix"]
    prefix = "Programming Language :: Python :: 3."
    promised = [text.rpartition(" ")[2] for text in PROJECT["project"]["classifiers"] if text.startswith(prefix)]
    assert matrix["python"] == promised
    assert PROJECT["project"]["requires-python"] == f">={promised[0]}"
    x86, arm, mac = matrix["os"]
    assert (x86.startswith("ubuntu"), arm, mac.startswith("macos")) == (True, f"{x86}-arm", True)


def test_ci_runs_what_people_run_at_home() -> None:
    assert commands("ci.yml", "test") == [".ci/hosted", "make lint test"]
    assert "make lint test" in (ROOT / ".ci" / "run").read_text()
    assert commands("ci.yml", "coverage")[:2] == [".ci/hosted", "make coverage"]


@pytest.mark.parametrize("script", ["run", "hosted"])
def test_ci_installs_what_tests_would_be_skipped_for_or_fails(script: str) -> None:
    lines = (ROOT / ".ci" / script).read_text().splitlines()
    assert "set -euo pipefail" in lines
    for part in ("redis-server", "chromium", "ray[serve]"):
        assert any(part in line for line in lines), part
    assert not any("||" in line for line in lines), "a failure that is only told of"


def test_every_make_target_of_a_workflow_is_there() -> None:
    targets = {*re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE)}
    for path in WORKFLOWS.glob("*.yml"):
        for line in re.findall(r"run: make (.*)", path.read_text()):
            assert {*line.split()} <= targets


def test_coverage_has_a_floor() -> None:
    assert 50 < PROJECT["tool"]["coverage"]["report"]["fail_under"] <= 100


def test_a_release_is_built_and_checked_before_it_is_published() -> None:
    workflow = read(WORKFLOWS / "release.yml")
    assert workflow["on"] == {"push": {"tags": ["v*"]}}
    assert "make release-check" in commands("release.yml", "build")
    assert "$GITHUB_REF_NAME" in commands("release.yml", "build")[0], "the tag is compared with the version"
    publish = workflow["jobs"]["publish"]
    assert (publish["needs"], publish["permissions"]) == ("build", {"id-token": "write"})


def test_the_version_is_in_one_place() -> None:
    assert "version" not in PROJECT["project"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "leftoff.__version__"}
    named = [path for path in (ROOT / "leftoff").rglob("*.py") if f'"{leftoff.__version__}"' in path.read_text()]
    assert named == [ROOT / "leftoff" / "__init__.py"]


def test_the_changelog_begins_with_this_version() -> None:
    versions = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions == [leftoff.__version__, "0.1.0"]


def test_commit_hooks_check_what_make_lint_checks() -> None:
    (repository,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    recipes = re.findall(r"^lint-(?:style|types):.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert len(recipes) == 2
    linted = [line.removeprefix("\t@$(BIN)/").removesuffix(" .") for each in recipes for line in each.splitlines()]
    hooked = [hook["entry"].removeprefix(".venv/bin/") for hook in repository["hooks"]]
    assert hooked == [line.replace("format --check .", "format --check") for line in linted]


def test_what_tests_and_checks_need_is_pinned() -> None:
    wanted = [*PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"]["dev"]]
    pins = (ROOT / "constraints.txt").read_text().split()
    assert {*map(package, wanted)} <= {*map(package, pins)}


def package(requirement: str) -> str:
    """The name in `name>=1.0; marker`, as the index spells it."""
    return re.split(r"[=<>!~;\[ ]", requirement)[0].lower().replace("_", "-")


def test_forms_ask_for_what_is_needed_to_find_a_bug() -> None:
    forms = {path.stem: read(path) for path in FORMS}
    assert forms.keys() == {"bug", "config", "feature", "wrong_text"}
    for name in ("bug", "wrong_text"):
        fields = {field["id"]: field for field in forms[name]["body"] if "id" in field}
        assert "leftoff doctor MODEL --json" in fields["doctor"]["attributes"]["label"]
        assert fields["doctor"]["validations"]["required"]
