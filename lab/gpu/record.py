"""The figures of a run: printed as they come, and written as JSON after each, so that a run may be cut off."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from lab.bench.table import NOTHING
from lab.gpu.goals import Goal
from leftoff.setting import SettingError

Say = Callable[[str], None]


@dataclass(frozen=True)
class Series:
    """Values of one server in the order in which they were measured, with the prompt tokens that each computed."""

    values: tuple[float, ...] = ()
    computed: tuple[int, ...] = ()

    def show(self, *, in_order: bool) -> str:
        """Each value if their order matters, else the median and the range."""
        if not self.values:
            return NOTHING
        if in_order or len(self.values) == 1:
            return ", ".join(map(_show, self.values))
        return f"{_show(median(self.values))} ({_show(min(self.values))} … {_show(max(self.values))})"

    def show_computed(self) -> str:
        """The fewest and the most."""
        if not self.computed:
            return NOTHING
        low, high = min(self.computed), max(self.computed)
        return f"{low:,}" if low == high else f"{low:,} … {high:,}"


NONE = Series()


@dataclass(frozen=True)
class Row:
    """One measure: `part` is the name it is asked for by, `goal` what was to be reached."""

    part: str
    title: str
    unit: str
    leftoff: Series
    peer: Series = NONE
    goal: str = ""
    is_reached: bool | None = None
    note: str = ""
    in_order: bool = False

    @property
    def verdict(self) -> str:
        return {True: "reached", False: "NOT reached", None: ""}[self.is_reached]

    def line(self) -> str:
        """The row as one line for the screen."""
        sides = {"leftoff": self.leftoff, "llama-server": self.peer}
        shown = [
            f"{name} {side.show(in_order=self.in_order)} {self.unit}"
            + (f" [computed {side.show_computed()}]" if side.computed else "")
            for name, side in sides.items()
            if side.values
        ]
        goal = [f"{self.goal}: {self.verdict}"] if self.goal else []
        return " · ".join([self.title, *shown, *goal, *filter(None, [self.note])])


@dataclass
class Record:
    """All rows of a run so far. `facts` are about the machine and the model; `commands` started the servers."""

    command: str
    facts: list[str]
    model: str
    long: int
    path: Path | None = None
    say: Say = lambda text: print(text, flush=True)
    rows: list[Row] = field(default_factory=list)
    commands: dict[str, list[str]] = field(default_factory=dict)

    def add(
        self,
        part: str,
        title: str,
        unit: str,
        leftoff: Series,
        peer: Series = NONE,
        goal: Goal | None = None,
        *,
        note: str = "",
        in_order: bool = False,
    ) -> None:
        """Takes the place of the same measure of an earlier run."""
        text, is_reached = "", None
        if goal:
            text, is_reached = goal.text, goal.is_reached(leftoff.values, peer.values)
        row = Row(part, title, unit, leftoff, peer, text, is_reached, note, in_order)
        self.say(f"  {row.line()}")
        places = [place for place, other in enumerate(self.rows) if (other.part, other.title) == (part, title)]
        if places:
            self.rows[places[0]] = row
        else:
            self.rows.append(row)
        self.write()

    def uses(self, name: str, command: str) -> None:
        """Notes how a server was started."""
        known = self.commands.setdefault(name, [])
        if command not in known:
            known.append(command)

    def write(self) -> None:
        if self.path:
            fields = {name: getattr(self, name) for name in ("command", "facts", "model", "long", "commands")}
            rows = [asdict(row) for row in self.rows]
            self.path.write_text(json.dumps({**fields, "rows": rows}, indent=1) + "\n")


def read_record(path: Path) -> Record:
    """What `Record.write` has written."""
    try:
        told = json.loads(path.read_text())
        rows = [_row(row) for row in told["rows"]]
        return Record(
            told["command"], told["facts"], told["model"], told["long"], path, rows=rows, commands=told["commands"]
        )
    except (ValueError, LookupError, TypeError) as error:
        raise SettingError(
            f"{path} is no record of `python -m lab.gpu --json` ({error!r}): name another file"
        ) from error


def _row(told: dict[str, Any]) -> Row:
    sides = {
        name: Series(*(tuple(told[name][part]) for part in ("values", "computed"))) for name in ("leftoff", "peer")
    }
    return Row(**{**told, **sides})


def _show(value: float) -> str:
    if value == round(value):
        return f"{value:,.0f}"
    return (
        f"{value:,.0f}"
        if abs(value) >= 100
        else f"{value:.1f}"
        if abs(value) >= 10
        else f"{value:.2f}".rstrip("0").rstrip(".")
    )


def listed(values: Sequence[float]) -> str:
    """Numbers in a sentence."""
    return ", ".join(map(_show, values))
