"""A comparison as a part of Markdown files: table, findings and plots.

Between the marks of `bench llama-server short` stands a small table, without plots, for a page that has no room.
"""

from collections.abc import Callable
from pathlib import Path

from lab.bench.comparison import Comparison, Figure, Outcome, Played
from lab.bench.findings import findings
from lab.bench.table import COLUMNS, NOTHING, Row, quotient, rows, show_mib, show_ms, show_times
from lab.chart import Chart
from lab.report import bullets, draw_plots, has_part, table, write_part


def write(comparison: Comparison, path: Path) -> None:
    """Into the file at its places, or else at its end; the plots lie in a folder beside it."""
    name = comparison.sides[-1].rpartition("/")[2]
    has_short = has_part(path, f"{name} short")
    if has_short:
        write_part(path, f"{name} short", short_part(comparison))
    if not has_short or has_part(path, name):
        write_part(path, name, part(comparison, draw_plots(charts(comparison), path, name)))


def part(comparison: Comparison, plots: str) -> str:
    made = f"Made by `{comparison.command}`:\n\n{bullets(comparison.facts)}"
    shown = table(COLUMNS, map(_cells, rows(comparison)), words=COLUMNS[:2])
    return f"{made}\n{shown}\n{bullets(findings(comparison))}\n{plots}"


def short_part(comparison: Comparison) -> str:
    """Computed over the unavoidable on each side, and how much longer the last one takes than the first."""
    sides = comparison.sides
    head = ["computed / unavoidable", *sides, f"first token, {sides[-1]} / {sides[0]}", "wall time"]
    return table(head, map(_short_cells, comparison.played), words=head[:1])


def charts(comparison: Comparison) -> list[Chart]:
    def chart(
        name: str, title: str, show: Callable[[float], str], measure: Callable[[Outcome], Figure | None]
    ) -> Chart:
        values = tuple(tuple(_median(measure(outcome)) for outcome in played.outcomes) for played in comparison.played)
        labels = tuple(played.workload.title for played in comparison.played)
        return Chart(name, title, comparison.sides, labels, values, show)

    return [
        chart("computed", "prompt tokens computed / unavoidable", lambda x: f"{x:.2f}", lambda outcome: outcome.ratio),
        chart("first-token", "time to first token, p50", show_ms, lambda outcome: outcome.first_token_p50),
        chart("wall", "wall time", show_ms, lambda outcome: outcome.wall_ms),
        chart("memory", "peak RSS", show_mib, lambda outcome: outcome.peak_bytes),
    ]


def _short_cells(played: Played) -> list[str]:
    def shown(figure: Figure | None) -> str:
        return show_times(figure.median) if figure else NOTHING

    ratios = [outcome.ratio for outcome in played.outcomes]
    last, own = played.outcomes[-1], played.own
    times = [quotient(last, own, lambda one: one.first_token_p50), quotient(last, own, lambda one: one.wall_ms)]
    return [
        played.workload.title,
        *(f"{ratio.median:.2f}" if ratio else NOTHING for ratio in ratios),
        *map(shown, times),
    ]


def _cells(row: Row) -> tuple[str, ...]:
    return tuple(f"*{cell}*" if cell and row.is_quotient else cell for cell in row.cells)


def _median(figure: Figure | None) -> float | None:
    return figure.median if figure else None
