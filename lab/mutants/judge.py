"""Runs tests on changed code, each change in a process of its own. The file on disk stays as it is."""

import contextlib
import importlib
import importlib.machinery
import os
import signal
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

import hypothesis
import pytest

from .change import Change
from .covering import Test

# Limits for what hangs: of processor time in one test for what runs for ever, of time in all for what waits for ever.
_START_S = 5  # to import everything, or to open an engine
_SLOWER = 3  # than without a change
_BUSY = 4  # the machine may have other things to do
_POLL_S = 0.02
_UNUSED = ("cacheprovider", "xdist", "xdist.looponfail", "pytest_cov", "schemathesis", "anyio")  # some load slowly
_PYTEST = ("-x", "-q", "-o", "addopts=", *(word for name in _UNUSED for word in ("-p", f"no:{name}")))
_WARM = ("-W", "ignore::pytest.PytestAssertRewriteWarning", "--hypothesis-profile=mutants", "--hypothesis-seed=0")


@dataclass(frozen=True)
class Verdict:
    """`found_by` is a test, or "time" for a change that makes tests hang; None if the change survived."""

    change: Change
    found_by: str | None
    num_tests: int
    seconds: float


@dataclass(frozen=True)
class _Trial:
    change: Change
    num_tests: int
    notes: Path  # where the child names the test that failed
    began: float
    deadline: float


class Judge:
    def __init__(
        self,
        root: Path,
        folder: Path,
        libraries: Iterable[str],
        *,
        jobs: int,
        budget_s: float,
        start_s: float = _START_S,
        busy: float = _BUSY,
    ) -> None:
        """For each change, tests are run that take at most `budget_s` without it.

        `start_s` is how much processor time a test may take beside its own, `busy` how many times as long in all.
        """
        self._root, self._folder, self._jobs, self._budget_s = root, folder, jobs, budget_s
        self._start_s, self._busy = start_s, busy
        self._running: dict[int, _Trial] = {}
        os.environ["OPENBLAS_NUM_THREADS"] = "1"  # nothing that is imported here may start a thread: forks lose it
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in libraries:
                with contextlib.suppress(Exception):
                    importlib.import_module(name)
        # A failure is enough: it need be neither small nor kept.
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile("mutants", deadline=None, database=None, phases=phases)

    def judge(self, trials: Iterable[tuple[Change, Sequence[Test]]]) -> Iterator[Verdict]:
        """Yields the verdicts in the order in which they are done."""
        for change, tests in trials:
            chosen = self._within_budget(tests)
            if not chosen:
                yield Verdict(change, None, 0, 0)
                continue
            while len(self._running) >= self._jobs:
                yield from self._ended()
            self._start(change, chosen)
        while self._running:
            yield from self._ended()

    def _within_budget(self, tests: Sequence[Test]) -> list[Test]:
        chosen: list[Test] = []
        seconds = 0.0
        for test in tests:
            seconds += test.seconds
            if chosen and seconds > self._budget_s:
                break
            chosen.append(test)
        return chosen

    def _start(self, change: Change, tests: Sequence[Test]) -> None:
        limit_s = self._busy * (self._start_s + _SLOWER * sum(test.seconds for test in tests))
        notes = self._folder / f"found-{time.monotonic_ns()}"
        pid = os.fork()
        if pid == 0:
            _run(self._root, change, tests, notes, self._start_s)
        now = time.monotonic()
        self._running[pid] = _Trial(change, len(tests), notes, now, now + limit_s)

    def _ended(self) -> Iterator[Verdict]:
        time.sleep(_POLL_S)
        for pid, trial in list(self._running.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            is_late = not done and time.monotonic() > trial.deadline
            if not done and not is_late:
                continue
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)  # with the servers that its tests have started
            if is_late:
                os.waitpid(pid, 0)
            del self._running[pid]
            yield Verdict(
                trial.change,
                _found_by(trial.notes, status if done else None),
                trial.num_tests,
                time.monotonic() - trial.began,
            )


def _found_by(notes: Path, status: int | None) -> str | None:
    said = notes.read_text() if notes.exists() else ""
    notes.unlink(missing_ok=True)
    if status is None or os.WIFSIGNALED(status):
        return "time" if status is None or os.WTERMSIG(status) == signal.SIGPROF else "crash"
    return (said or "import") if os.WEXITSTATUS(status) else None


def _run(root: Path, change: Change, tests: Sequence[Test], notes: Path, start_s: float) -> None:
    """Runs in the child, which ends with the exit status of pytest."""
    status = 1
    try:
        os.setsid()
        signal.setitimer(signal.ITIMER_PROF, start_s)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        os.chdir(root)
        _install(root, change)
        seconds = {test.name: test.seconds for test in tests}
        status = int(pytest.main([*_PYTEST, *_WARM, *seconds], plugins=[_Watch(notes, seconds, start_s)]))
    finally:
        os._exit(status)  # threads of a broken server must not keep it


def _install(root: Path, change: Change) -> None:
    """What imports the file from now on gets the changed code."""
    path = str(root / change.path)
    changed = compile(change.apply(Path(path).read_text()), path, "exec")
    get_code = importlib.machinery.SourceFileLoader.get_code

    def get_changed_code(self: importlib.machinery.SourceFileLoader, name: str) -> CodeType | None:
        return changed if self.path == path else get_code(self, name)

    importlib.machinery.SourceFileLoader.get_code = get_changed_code  # type: ignore[method-assign, assignment]


class _Watch:
    """Names the test that fails, and ends one that takes too much processor time: so does the signal of the timer."""

    def __init__(self, notes: Path, seconds: Mapping[str, float], start_s: float) -> None:
        self._notes, self._seconds, self._start_s = notes, seconds, start_s

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        signal.setitimer(signal.ITIMER_PROF, self._start_s + _SLOWER * self._seconds[nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._notes.write_text(report.nodeid)
