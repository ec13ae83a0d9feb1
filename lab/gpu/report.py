"""A record as a section of a Markdown file, between the marks of `bench gpu`: tables, plots, machine, commands."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from statistics import median

from lab.bench.table import NOTHING, show_ms, show_times
from lab.chart import Chart
from lab.gpu.record import Record, Row, Series
from lab.report import bullets, draw_plots, write_part
from lab.report import table as markdown_table

_MARK = "gpu"
_NUMBERS = ("leftoff", "llama-server", "times as fast", "computed by leftoff", "computed by llama-server")
_WORDS = ("goal", "", "notes")
_TABLES = (
    ("Decode, tokens per second", ("decode", "sampled")),
    ("Prompts of {long:,} tokens", ("cold", "ram", "parked", "same", "edit", "kill")),
    ("Layers in RAM", ("offload",)),
    ("Two models with room for one", ("swaps",)),
    ("Workloads, seconds of waiting", ("workloads",)),
    ("Exactness", ("exact",)),
)
_HOW = (
    "Median (lowest … highest), or all values in the order in which they were measured. Prompts are random token ids, "
    "asked by `/completion`, but for the workloads, which are chats. A goal is reached if every value reaches it, "
    "and of rates if the median does. *Computed* are prompt tokens, as each server reports them. "
    "`python -m lab.gpu model` makes random models."
)


def write_report(record: Record, path: Path) -> None:
    """Into the file, at its marks or else at its end; the plots lie in a folder beside it."""
    write_part(path, _MARK, section(record, draw_plots(charts(record), path, _MARK)))


def section(record: Record, plots: str) -> str:
    """The whole part, with its heading."""
    titled = [(title.format(long=record.long), _rows(record, parts)) for title, parts in _TABLES]
    tables = "\n".join(table(title, rows) for title, rows in titled if rows)
    return f"## On a GPU\n\n{made_by(record)}\n{_HOW}\n\n{tables}\n{losses(record.rows)}\n{plots}"


def made_by(record: Record) -> str:
    """The command, the machine, and how the servers were started."""
    return f"Made by `{record.command}`:\n\n{bullets([*record.facts, *_commands(record)])}"


def losses(rows: Iterable[Row]) -> str:
    """A sentence about each row where llama-server is better, or where the goal was not reached."""
    lost = bullets(_losses(rows)) or bullets(["nowhere in this run"])
    return f"Where leftoff is behind llama-server, or behind its goal:\n\n{lost}"


def _losses(rows: Iterable[Row]) -> Iterator[str]:
    for row in rows:
        ratio = quotient(row)
        said = [f"llama-server is {1 / ratio:.2f} times as fast"] if ratio and ratio < 1 else []
        said += [f"the goal was {row.goal}"] if row.is_reached is False else []
        if said:
            yield f"{row.title}: {row.leftoff.show(in_order=row.in_order)} {row.unit}; {'; '.join(said)}."


def charts(record: Record) -> list[Chart]:
    """One plot for each table that has something to compare."""
    wanted = (
        ("decode", "decode, tokens per second", ("decode", "sampled"), lambda value: f"{value:,.0f}"),
        ("cold", f"cold prompts of {record.long:,} tokens", ("cold",), show_ms),
        ("first-token", "first token of a known prompt", ("ram", "parked", "same", "edit", "kill"), show_ms),
        ("workloads", "workloads, seconds of waiting", ("workloads",), lambda value: f"{value:.1f} s"),
    )
    made = []
    for name, title, parts, show in wanted:
        rows = [row for row in _rows(record, parts) if row.unit in ("tok/s", "ms", "s")]
        bars = [bar for row in rows for bar in _bars(row)]
        labels, values = tuple(bar.label for bar in bars), tuple((bar.leftoff, bar.peer) for bar in bars)
        if rows:
            made.append(Chart(name, title, ("leftoff", "llama-server"), labels, values, show))
    return made


@dataclass(frozen=True)
class _Bar:
    label: str
    leftoff: float | None
    peer: float | None


def _bars(row: Row) -> Iterator[_Bar]:
    """One for each value if their order matters, else the medians."""
    if not row.in_order:
        yield _Bar(row.title, _middle(row.leftoff), _middle(row.peer))
        return
    for number, (own, peer) in enumerate(zip_longest(row.leftoff.values, row.peer.values), 1):
        yield _Bar(f"{row.title}: {number}", own, peer)


def _rows(record: Record, parts: Sequence[str]) -> list[Row]:
    order = {part: number for number, part in enumerate(parts)}
    return sorted((row for row in record.rows if row.part in order), key=lambda row: order[row.part])


def table(title: str, rows: Sequence[Row], first: str = "measure") -> str:
    """A table without the columns that would be empty. `first` is the head of the column of titles."""
    cells = [(first, *_NUMBERS, *_WORDS), *map(_cells, rows)]
    columns = [column for column in zip(*cells, strict=True) if any(cell not in ("", NOTHING) for cell in column[1:])]
    head, *lines = zip(*columns, strict=True)
    return f"### {title}\n\n{markdown_table(head, lines, words=(first, *_WORDS))}"


def _cells(row: Row) -> tuple[str, ...]:
    def shown(side: Series) -> str:
        return f"{side.show(in_order=row.in_order)} {row.unit}" if side.values else NOTHING

    times = quotient(row)
    ratio = show_times(times) if times else ""
    computed = (row.leftoff.show_computed(), row.peer.show_computed())
    return (row.title, shown(row.leftoff), shown(row.peer), ratio, *computed, row.goal, row.verdict, row.note)


def _commands(record: Record) -> Iterator[str]:
    for name, commands in record.commands.items():
        yield f"{name} was started as " + ", ".join(f"`{command}`" for command in commands)


def quotient(row: Row) -> float | None:
    """How many times better leftoff is; None without two sides."""
    ours, theirs = _middle(row.leftoff), _middle(row.peer)
    if not ours or not theirs:
        return None
    return ours / theirs if row.unit == "tok/s" else theirs / ours


def _middle(side: Series) -> float | None:
    return median(side.values) if side.values else None
