"""A matrix as a section of a Markdown file, between the marks of `bench gpu-matrix`: lost cells, overview, figures."""

from dataclasses import replace
from pathlib import Path

from lab.bench.table import show_times
from lab.gpu.cells import OPERATIONS
from lab.gpu.record import Record, Row
from lab.gpu.report import losses, made_by, quotient, table
from lab.report import table as markdown_table
from lab.report import write_part

_MARK = "gpu-matrix"
_HOW = (
    "Random models of each kind, in Q8_0 (`lab/gpu/shapes.py`). Prompts are random token ids, asked by `/completion`, "
    "of {long:,} tokens where the kind has no other number. Each server runs alone. A bound holds for the median. "
    "*Computed* are prompt tokens, as each server reports them. From RAM: leftoff's engine "
    "is emptied before; llama-server, which has no such difference, has its figures of agents in turn. After kill -9 "
    "llama-server reads everything: its figures are those of cold prompts."
)
_OVERVIEW = "How many times as fast as llama-server leftoff is; **bold** where a bound was missed:"


def write_matrix_report(record: Record, path: Path) -> None:
    """Into the file, at its marks or else at its end."""
    write_part(path, _MARK, section(record))


def section(record: Record) -> str:
    """The whole part, with its heading."""
    rows = sorted(record.rows, key=lambda row: row.is_reached is not False)  # the lost ones first
    lost = losses(replace(row, title=f"{row.part}: {row.title}") for row in rows)
    operations = [(title, [row for row in rows if row.title == title]) for title, _ in OPERATIONS.values()]
    tables = "\n".join(
        table(title[0].upper() + title[1:], [replace(row, title=row.part) for row in found], "kind")
        for title, found in operations
        if found
    )
    how = _HOW.format(long=record.long)
    return f"## Every kind on a GPU\n\n{made_by(record)}\n{how}\n\n{lost}\n{_OVERVIEW}\n\n{_overview(record)}\n{tables}"


def _overview(record: Record) -> str:
    """Kinds by operations."""
    titles = [
        title for title, _ in OPERATIONS.values() if any(row.title == title and row.peer.values for row in record.rows)
    ]
    kinds = dict.fromkeys(row.part for row in record.rows)
    found = {(row.part, row.title): row for row in record.rows}
    lines = [[kind, *(_cell(found.get((kind, title))) for title in titles)] for kind in kinds]
    return markdown_table(["kind", *titles], lines, words=["kind"])


def _cell(row: Row | None) -> str:
    times = quotient(row) if row else None
    shown = show_times(times) if times else ""
    return f"**{shown or 'missed'}**" if row and row.is_reached is False else shown
