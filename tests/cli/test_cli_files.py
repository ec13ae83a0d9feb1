"""A file that cannot be read or written is named, with its flag or argument, before anything is done."""

import io
import os
import re
from pathlib import Path

import pytest
from rich.console import Console

from lab.bench.__main__ import _progress
from leftoff.cli.main import main
from leftoff.disk.files import problem_of
from leftoff.disk.tools.models import models

Capture = pytest.CaptureFixture[str]
_NOBODY = 65534


def test_a_bundle_that_is_not_there(capsys: Capture, tmp_path: Path) -> None:
    assert main(["cache", "import", str(tmp_path / "none"), "--cache-dir", str(tmp_path)]) == 1
    assert f"leftoff: FILE {tmp_path / 'none'}: No such file" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["list", "verify", "clear"])
def test_a_folder_with_nothing_in_it_is_said_to_be_empty(capsys: Capture, tmp_path: Path, action: str) -> None:
    assert main(["cache", action, "--cache-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"nothing is kept in {tmp_path}\n"


@pytest.mark.parametrize("is_missing", [True, False])
def test_a_cache_folder_that_may_not_be_looked_at_has_no_models(tmp_path: Path, is_missing: bool) -> None:
    """The server counts them before it begins, and goes on without a disk."""
    root = tmp_path / ("x" * 300 if is_missing else "file")
    if not is_missing:
        root.touch()
    assert models(root) == []
    assert problem_of(root) != ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else for a while")
def test_a_cache_folder_of_somebody_else(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    root.mkdir(mode=0o000)
    os.seteuid(_NOBODY)
    try:
        assert models(root) == []
        problem = problem_of(root / "v1")
    finally:
        os.seteuid(0)
    assert "cannot be written: change its permissions, or give another --cache-dir" in problem


def test_a_cache_folder_that_can_be_used_has_no_problem(tmp_path: Path) -> None:
    assert problem_of(tmp_path / "v1" / "model") == ""
    assert [*(tmp_path / "v1" / "model").iterdir()] == []


def test_the_progress_of_a_bench_begins_at_nothing() -> None:
    file = io.StringIO()
    with _progress(Console(file=file, force_terminal=True, width=100), 2) as report:
        for title in ("first", "second"):
            report(title)
    counts = re.findall(r"(-?\d+)/2", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue()))
    assert {*counts} == {"0", "1"}
