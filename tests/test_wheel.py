"""The package as it is built: it holds the model, and works where the repository is not.

`make release-check` goes further: environments that are empty, and the whole demonstration in them.
"""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from leftoff import __version__
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[1]
SOURCES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
APART = ("lab", "tests", "examples", "training")  # for whoever works on leftoff, not for whoever runs it


def run(*command: str, folder: Path, path: Path | None = None) -> str:
    environment = os.environ | ({"PYTHONPATH": str(path)} if path else {})
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr or done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, for building leaves its traces beside the sources. Without isolation it needs no network.

    It is not compressed: that would take longer than all the rest.
    """
    folder = tmp_path_factory.mktemp("sources")
    for name in SOURCES:
        shutil.copy(ROOT / name, folder)
    for name in ("leftoff", *APART):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "data"))
    stored = "--config-setting=--build-option=--compression=stored"
    run("-m", "build", "--wheel", "--no-isolation", stored, folder=folder)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    options = ("--quiet", "--no-deps", "--no-index", "--no-compile")
    run("-m", "pip", "install", *options, "--target", str(folder), str(wheel), folder=folder)
    return folder


def test_the_wheel_holds_every_file_of_the_package_with_its_model(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
    files = {path for path in (ROOT / "leftoff").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert {str(path.relative_to(ROOT)) for path in files} == {name for name in sizes if name.startswith("leftoff/")}
    assert 20_000_000 < sizes["leftoff/models/leftoff-tiny-q8_0.gguf"] < 30_000_000


def test_the_wheel_holds_what_a_user_runs_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        folders = {name.partition("/")[0] for name in archive.namelist()}
        scripts = archive.read(f"leftoff-{__version__}.dist-info/entry_points.txt").decode()
    assert folders == {"leftoff", f"leftoff-{__version__}.dist-info"}
    assert not folders & {*APART}
    assert scripts.split() == ["[console_scripts]", "leftoff", "=", "leftoff.__main__:main"]


def test_its_page_on_an_index_has_no_link_that_leads_nowhere_from_there(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        page = archive.read(f"leftoff-{__version__}.dist-info/METADATA").decode()
    assert "Description-Content-Type: text/markdown" in page
    assert "(https://docs.astral.sh/uv/)" in page
    assert "the whole play" in page
    assert re.findall(r"\]\((?!https:)[^)]*\)|(?:src|srcset|href)=\S+", page) == []


def test_the_command_is_there_and_finds_the_model_beside_it(installed: Path, tmp_path: Path) -> None:
    script = str(installed / "bin" / "leftoff")
    report = run(script, "doctor", "--json", "--threads", "1", folder=tmp_path, path=installed)
    assert str(installed / "leftoff" / "models" / "leftoff-tiny-q8_0.gguf") in report
