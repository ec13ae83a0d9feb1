"""A comparison as one HTML file with everything in it: plots, table, findings, how it was made."""

from collections.abc import Sequence
from html import escape

from lab.bench.chart import charts, draw
from lab.bench.comparison import Comparison
from lab.bench.findings import findings
from lab.bench.table import COLUMNS, Row, rows

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem; color: #222; }
code { background: #f2f2f2; padding: .1em .3em; border-radius: 3px; }
table { border-collapse: collapse; font-size: 13px; }
th, td { padding: .25em .7em; text-align: right; white-space: nowrap; }
th { border-bottom: 2px solid #222; }
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left; }
tr.first td { border-top: 1px solid #ccc; }
tr.quotient { color: #777; font-style: italic; }
svg { max-width: 100%; height: auto; margin: 1rem 0; border: 1px solid #ddd; border-radius: 6px; }
"""


def page(comparisons: Sequence[Comparison]) -> str:
    sections = "\n".join(_section(comparison) for comparison in comparisons)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n<title>leftoff bench</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<h1>leftoff bench</h1>\n{sections}\n</body>\n</html>\n"
    )


def _section(comparison: Comparison) -> str:
    plots = "\n".join(draw(chart) for chart in charts(comparison))
    head = "".join(f"<th>{escape(column)}</th>" for column in COLUMNS)
    body = "\n".join(map(_row, rows(comparison)))
    return (
        f"<h2>{escape(' against '.join(comparison.sides))}</h2>\n<p><code>{escape(comparison.command)}</code></p>\n"
        f"{_list(comparison.facts)}\n{plots}\n"
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>\n{_list(findings(comparison))}"
    )


def _row(row: Row) -> str:
    name = "first" if row.is_first else "quotient" if row.is_quotient else ""
    return f'<tr class="{name}">' + "".join(f"<td>{escape(cell)}</td>" for cell in row.cells) + "</tr>"


def _list(lines: Sequence[str]) -> str:
    return "<ul>\n" + "\n".join(f"<li>{escape(line)}</li>" for line in lines) + "\n</ul>"
