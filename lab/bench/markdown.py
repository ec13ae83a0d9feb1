"""A comparison as a part of Markdown files: found by its marks, and replaced when it is made again.

    <!-- bench llama-server -->
    ... table, findings and plots, by `python -m lab.bench --against llama-server --markdown FILE`
    <!-- end bench llama-server -->

Between the marks of `bench llama-server short` stands a small table, without plots, for a page that has no room.
"""

from collections.abc import Sequence
from pathlib import Path

from lab.bench.chart import Chart, charts, draw
from lab.bench.comparison import Comparison, Figure, Played
from lab.bench.findings import findings
from lab.bench.table import COLUMNS, NOTHING, Row, quotient, rows, show_times


def write(comparison: Comparison, path: Path) -> None:
    """Into the file at its places, or else at its end; the plots lie in a folder beside it."""
    name = comparison.sides[-1].rpartition("/")[2]
    text = path.read_text() if path.exists() else "# leftoff bench\n"
    has_short = _begin(f"{name} short") in text
    if has_short:
        text = replaced(text, f"{name} short", short_part(comparison))
    if not has_short or _begin(name) in text:
        text = replaced(text, name, part(comparison, draw_plots(charts(comparison), path, name)))
    path.write_text(text)


def replaced(text: str, name: str, content: str) -> str:
    before, found, rest = text.partition(_begin(name))
    after = rest.partition(_end(name))[2] if found else ""
    separator = "" if found or before.endswith("\n\n") else "\n"
    return f"{before}{separator}{_begin(name)}\n{content}\n{_end(name)}{after}"


def part(comparison: Comparison, plots: Sequence[str]) -> str:
    made = f"Made by `{comparison.command}`:\n\n" + "".join(f"- {fact}\n" for fact in comparison.facts)
    rule = ["---", "---", *["---:"] * (len(COLUMNS) - 2)]
    table = "".join(map(_line, [COLUMNS, rule, *map(_cells, rows(comparison))]))
    said = "".join(f"- {line}\n" for line in findings(comparison))
    images = "\n".join(f"![]({plot})" for plot in plots)
    return f"{made}\n{table}\n{said}\n{images}\n"


def short_part(comparison: Comparison) -> str:
    """Computed over the unavoidable on each side, and how much longer the last one takes than the first."""
    sides = comparison.sides
    head = ["computed / unavoidable", *sides, f"first token, {sides[-1]} / {sides[0]}", "wall time"]
    return "".join(map(_line, [head, ["---", *["---:"] * (len(head) - 1)], *map(_short_cells, comparison.played)]))


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


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _begin(name: str) -> str:
    return f"<!-- bench {name} -->\n"


def _end(name: str) -> str:
    return f"<!-- end bench {name} -->\n"


def draw_plots(plotted: Sequence[Chart], path: Path, name: str) -> list[str]:
    """Draws charts into the folder beside a Markdown file; returns their paths, as that file names them."""
    folder = path.with_suffix("")
    folder.mkdir(exist_ok=True)
    plots = []
    for chart in plotted:
        file = folder / f"bench-{name}-{chart.name}.svg"
        file.write_text(draw(chart) + "\n")
        plots.append(file.relative_to(path.parent).as_posix())
    return plots
