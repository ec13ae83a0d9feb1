"""Plays workloads on servers side by side, run by run: A B A B. Whatever else the machine does meets both alike."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from lab.bench.play import Run, play
from lab.bench.side import Side
from lab.bench.texts import Texts
from lab.bench.workload import Workload

Report = Callable[[str], None]


@dataclass(frozen=True)
class Figure:
    """A median over the rounds, and its spread."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "Figure | None":
        """None where nothing is known."""
        known = [value for value in values if value is not None]
        return cls(statistics.median(known), min(known), max(known)) if known else None


@dataclass(frozen=True)
class Outcome:
    """One workload on one server, a run for each round."""

    side: str
    runs: tuple[Run, ...]

    @property
    def computed(self) -> Figure | None:
        return Figure.of(run.computed for run in self.runs)

    @property
    def cached(self) -> Figure | None:
        return Figure.of(run.cached for run in self.runs)

    @property
    def unavoidable(self) -> Figure | None:
        return Figure.of(run.unavoidable for run in self.runs)

    @property
    def ratio(self) -> Figure | None:
        """Computed over the unavoidable."""
        return Figure.of(run.computed / run.unavoidable for run in self.runs if run.unavoidable)

    @property
    def first_token_p50(self) -> Figure | None:
        return Figure.of(statistics.median(run.first_token_ms) for run in self.runs if run.first_token_ms)

    @property
    def first_token_p95(self) -> Figure | None:
        return Figure.of(_percentile(run.first_token_ms, 95) for run in self.runs if run.first_token_ms)

    @property
    def wall_ms(self) -> Figure | None:
        return Figure.of(run.wall_ms for run in self.runs)

    @property
    def peak_bytes(self) -> Figure | None:
        return Figure.of(run.peak_bytes for run in self.runs)


@dataclass(frozen=True)
class Played:
    """A workload and what came of it on each server, in the order of the sides."""

    workload: Workload
    outcomes: tuple[Outcome, ...]

    @property
    def own(self) -> Outcome:
        return self.outcomes[0]


@dataclass(frozen=True)
class Comparison:
    """`command` makes it again."""

    command: str
    facts: tuple[str, ...]
    sides: tuple[str, ...]
    num_rounds: int
    played: tuple[Played, ...]


@dataclass(frozen=True)
class Match:
    """What is to be played. `seeds` has one for each round; `scale` shortens all texts."""

    sides: tuple[Side, ...]
    workloads: tuple[Workload, ...]
    seeds: tuple[int, ...]
    scale: float = 1.0

    @property
    def num_plays(self) -> int:
        return len(self.sides) * len(self.workloads) * len(self.seeds)

    def play(self, report: Report) -> tuple[Played, ...]:
        """`report` is told the title of each play before it."""
        return tuple(self._play(workload, report) for workload in self.workloads)

    def _play(self, workload: Workload, report: Report) -> Played:
        runs: dict[str, list[Run]] = {side.name: [] for side in self.sides}
        for seed in self.seeds:
            for side in self.sides:
                report(f"{workload.title} · {side.name}")
                with side.open(workload.setup) as station:
                    script = workload.script(Texts(seed, scale=self.scale))
                    runs[side.name].append(play(script, station, workload.setup))
        return Played(workload, tuple(Outcome(name, tuple(some)) for name, some in runs.items()))


def _percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that so many per cent do not exceed."""
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]
