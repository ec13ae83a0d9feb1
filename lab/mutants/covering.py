"""Which tests run which lines, and how long each takes.

That is kept in a file: later, only those test files are run again that have changed, or that ran code that has.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import coverage
import msgspec
import pytest

_OURS = ("leftoff", "tests", "lab", "training")
_FROM = "LEFTOFF_MUTANTS_SEEN"  # names the file that the plugin below writes


class Test(msgspec.Struct):
    """One test that passes: its seconds, and by file of the code the lines that it ran."""

    name: str
    seconds: float
    lines: dict[str, set[int]] = {}


class TestFile(msgspec.Struct):
    """The tests of one file, and the digests of that file and of the code it ran, as they were then."""

    digests: dict[str, str]
    tests: list[Test]


class Covering(msgspec.Struct):
    """What each test file covers. `libraries` are the modules, other than ours, that the tests import."""

    files: dict[str, TestFile] = {}
    libraries: list[str] = []

    def of(self, path: str, lines: range) -> list[Test]:
        """The tests that run one of these lines, the quickest first."""
        tests = (test for file in self.files.values() for test in file.tests)
        return sorted(
            (test for test in tests if not test.lines.get(path, set()).isdisjoint(lines)), key=lambda test: test.seconds
        )


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


@dataclass(frozen=True)
class Coverer:
    root: Path
    packages: Sequence[str]
    kept: Path
    jobs: int

    def cover(self, folders: Iterable[str]) -> Covering:
        covering = self._read()
        paths = {str(path.relative_to(self.root)) for name in folders for path in (self.root / name).rglob("test_*.py")}
        covering.files = {name: file for name, file in covering.files.items() if name in paths and self._is_fresh(file)}
        stale = sorted(paths - covering.files.keys())
        if stale:
            print(f"{len(stale)} test files are run to see what they cover", flush=True)
            self._run(stale, covering)
            self.kept.parent.mkdir(parents=True, exist_ok=True)
            self.kept.write_bytes(msgspec.json.encode(covering))
        return covering

    def _read(self) -> Covering:
        return msgspec.json.decode(self.kept.read_bytes(), type=Covering) if self.kept.exists() else Covering()

    def _is_fresh(self, file: TestFile) -> bool:
        return all(digest(self.root / name) == known for name, known in file.digests.items())

    def _run(self, stale: Sequence[str], covering: Covering) -> None:
        folder = self.kept.parent
        folder.mkdir(parents=True, exist_ok=True)
        seen, data, settings = folder / "seen.json", folder / "coverage", folder / "settings.ini"
        settings.write_text("[run]\nsource =\n" + "".join(f"    {self.root / name}\n" for name in self.packages))
        options = ["--cov", f"--cov-config={settings}", "--cov-context=test", "--cov-report="]
        command = [sys.executable, "-m", "pytest", "-q", "-n", str(self.jobs), "-p", __name__, *options, *stale]
        environment = os.environ | {_FROM: str(seen), "COVERAGE_FILE": str(data)}
        done = subprocess.run(command, cwd=self.root, env=environment, check=False, stdout=subprocess.PIPE)
        if done.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            sys.exit(done.stdout.decode())
        report = json.loads(seen.read_bytes())
        if report["failed"]:
            print("These tests fail without any change, and are left out:", *report["failed"], sep="\n", flush=True)
        covering.libraries = sorted({*covering.libraries, *report["libraries"]})
        lines = self._lines_by_test(data)
        for name in stale:
            tests = [
                Test(test, seconds, lines.get(test, {}))
                for test, seconds in report["seconds"].items()
                if test.split("::")[0] == name
            ]
            ran = {name, *(path for test in tests for path in test.lines)}
            covering.files[name] = TestFile({path: digest(self.root / path) for path in ran}, tests)

    def _lines_by_test(self, data: Path) -> dict[str, dict[str, set[int]]]:
        measured = coverage.CoverageData(str(data))
        measured.read()
        found: dict[str, dict[str, set[int]]] = {}
        for file in measured.measured_files():
            path = str(Path(file).relative_to(self.root))
            for line, contexts in measured.contexts_by_lineno(file).items():
                for context in filter(None, contexts):
                    found.setdefault(context.rpartition("|")[0], {}).setdefault(path, set()).add(line)
        return found


class _Seen:
    """A plugin of pytest that notes outcomes and times, and what was imported in its workers."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()
        self._skipped: set[str] = set()
        self._libraries: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0) + report.duration
        if not report.passed:
            (self._failed if report.failed else self._skipped).add(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        self._libraries.update(vars(node)["workeroutput"]["libraries"])

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        libraries = [name for name in sys.modules if name.split(".")[0] not in (*_OURS, "__main__", "conftest")]
        if (output := vars(session.config).get("workeroutput")) is not None:  # a worker of xdist
            output["libraries"] = libraries
            return
        passed = {name: self._seconds[name] for name in self._seconds.keys() - self._failed - self._skipped}
        report = {"seconds": passed, "failed": sorted(self._failed), "libraries": sorted(self._libraries)}
        Path(os.environ[_FROM]).write_text(json.dumps(report))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Seen())
