"""The check of a release: what fails and what was not tried is told. `make release-check` runs it, for minutes."""

import sys
from pathlib import Path

import pytest

from lab.release import VERSIONS, Release, check
from leftoff import __version__


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    """Of the right names, and broken."""
    (tmp_path / f"leftoff-{__version__}-py3-none-any.whl").write_bytes(b"no wheel")
    (tmp_path / f"leftoff-{__version__}.tar.gz").write_bytes(b"no archive")
    return tmp_path


def test_another_version_is_not_checked_in_the_place_of_this_one(dist: Path) -> None:
    (dist / f"leftoff-{__version__}.tar.gz").rename(dist / "leftoff-0.0.1.tar.gz")
    with pytest.raises(SystemExit, match="make wheel"):
        Release(dist, dist)


def test_a_command_that_fails_is_told_with_its_last_line(dist: Path) -> None:
    release = Release(dist, dist)
    python = sys.executable
    assert str(release.run("one", [python, "-c", ""])).endswith("s  one")
    broken = release.run("two", [python, "-c", "raise SystemExit('no such thing')"], [python, "-c", "never"])
    assert str(broken) == "FAILED     two: no such thing"
    slow = release.run("three", [python, "-c", "input()"], limit_s=0.001)
    assert "longer" in slow.problem


def test_every_supported_python_is_tried_or_named(dist: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the one Python that there is makes no environment, all that is tried fails, and all else says why not."""
    python = dist / f"python{VERSIONS[0]}"
    python.write_text('#!/bin/sh\n[ "$1" = -c ]\n')
    python.chmod(0o755)
    monkeypatch.setenv("PATH", str(dist))
    monkeypatch.setattr(sys, "executable", str(python))
    told = [*map(str, check(Release(dist, dist)))]
    assert [line for line in told if not line.startswith(("FAILED", "not tried"))] == []
    assert [line.split()[3] for line in told if "Python" in line] == [f"{version}:" for version in VERSIONS[1:]]
    assert [line.split()[2] for line in told if line.startswith("not tried")][-2:] == ["uvx:", "pipx:"]
