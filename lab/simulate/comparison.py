"""Plays one recording against several schemes under several budgets, as many at a time as there are cores."""

import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from lab.simulate.llm import Llm
from lab.simulate.outcome import Outcome, play, unavoidable_tokens
from lab.simulate.schedule import side_by_side
from lab.simulate.scheme import Budget
from lab.simulate.schemes import SCHEMES
from lab.simulate.trace import Recording, Trace


@dataclass(frozen=True)
class Run:
    """What is played."""

    scheme: str
    num_sessions: int
    budget: Budget


@dataclass(frozen=True)
class Result:
    """What came out, and what nobody could have avoided."""

    run: Run
    outcome: Outcome
    unavoidable_tokens: int

    @property
    def over_unavoidable(self) -> float:
        return self.outcome.computed_tokens / self.unavoidable_tokens


class Comparison:
    """One recording and one model."""

    def __init__(self, recording: Recording, llm: Llm) -> None:
        self._recording = recording
        self._llm = llm
        self._traces: dict[int, Trace] = {}
        self._unavoidable: dict[int, int] = {}

    def result(self, run: Run) -> Result:
        if run.num_sessions not in self._traces:
            trace = side_by_side(self._recording, run.num_sessions)
            self._traces[run.num_sessions] = trace
            self._unavoidable[run.num_sessions] = unavoidable_tokens(trace)
        trace = self._traces[run.num_sessions]
        scheme = SCHEMES[run.scheme](self._llm, trace, run.budget)
        return Result(run, play(trace, scheme, self._llm), self._unavoidable[run.num_sessions])

    def results(self, runs: Sequence[Run], num_workers: int) -> Iterator[Result]:
        """Yields results in the order of the runs, each as soon as it and those before it are there."""
        if num_workers == 1:
            yield from map(self.result, runs)
            return
        with ProcessPoolExecutor(num_workers, initializer=_begin, initargs=(self._recording, self._llm)) as workers:
            yield from workers.map(_result, runs)


_IN_WORKER: list[Comparison] = []


def _begin(recording: Recording, llm: Llm) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of them; the first process ends the others
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _IN_WORKER.append(Comparison(recording, llm))


def _result(run: Run) -> Result:
    return _IN_WORKER[0].result(run)
