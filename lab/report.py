"""The writer of all reports: parts of Markdown files, with tables and plots.

A part is found by its marks, and replaced when it is made again:

    <!-- bench llama-server -->
    ... table, findings and plots, by `python -m lab.bench --against llama-server --markdown FILE`
    <!-- end bench llama-server -->
"""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from lab.chart import Chart, draw


def write_part(path: Path, name: str, content: str) -> None:
    """Into the file, at its marks or else at its end."""
    text = path.read_text() if path.exists() else "# Benchmarks\n"
    path.write_text(replaced(text, name, content))


def has_part(path: Path, name: str) -> bool:
    return path.exists() and _begin(name) in path.read_text()


def replaced(text: str, name: str, content: str) -> str:
    before, found, rest = text.partition(_begin(name))
    after = rest.partition(_end(name))[2] if found else ""
    separator = "" if found or before.endswith("\n\n") else "\n"
    return f"{before}{separator}{_begin(name)}\n{content}\n{_end(name)}{after}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], words: Collection[str]) -> str:
    """`words` are the heads of the columns that hold no numbers."""
    rule = ["---" if column in words else "---:" for column in head]
    return "".join(map(_line, [head, rule, *rows]))


def bullets(lines: Iterable[str]) -> str:
    return "".join(f"- {line}\n" for line in lines)


def draw_plots(charts: Iterable[Chart], path: Path, name: str) -> str:
    """Draws into the folder beside the Markdown file; returns what shows the plots in it."""
    folder = path.with_suffix("")
    folder.mkdir(exist_ok=True)
    shown = ""
    for chart in charts:
        file = folder / f"bench-{name}-{chart.name}.svg"
        file.write_text(draw(chart) + "\n")
        shown += f"![]({file.relative_to(path.parent).as_posix()})\n"
    return shown


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _begin(name: str) -> str:
    return f"<!-- bench {name} -->\n"


def _end(name: str) -> str:
    return f"<!-- end bench {name} -->\n"
