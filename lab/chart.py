"""Bar charts as SVG that needs nothing else: it stands in a file of its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_COLOURS = ("#1a8f7d", "#d9663b", "#6b7fd7", "#b8892b")
_LABELS, _BARS, _VALUES = 260, 420, 90  # widths of the three columns
_BAR, _GAP, _TOP = 13, 10, 56


@dataclass(frozen=True)
class Chart:
    """For each label one bar per series; None where nothing is known."""

    name: str
    title: str
    series: tuple[str, ...]
    labels: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    show: Callable[[float], str]


def draw(chart: Chart) -> str:
    group = len(chart.series) * _BAR + _GAP
    width, height = _LABELS + _BARS + _VALUES, _TOP + group * len(chart.labels)
    longest = max((value for values in chart.values for value in values if value is not None), default=0.0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="{escape(chart.title)}">',
        f'<rect width="{width}" height="{height}" rx="6" fill="#ffffff"/>',
        f'<text x="12" y="20" font-size="14" font-weight="600" fill="#222">{escape(chart.title)}</text>',
        *_legend(chart.series),
        *(
            part
            for number, (label, values) in enumerate(zip(chart.labels, chart.values, strict=True))
            for part in _group(label, values, chart.show, longest or 1.0, _TOP + group * number)
        ),
        "</svg>",
    ]
    return "\n".join(parts)


def _legend(series: Sequence[str]) -> list[str]:
    parts, x = [], 12
    for name, colour in zip(series, _COLOURS, strict=False):
        parts.append(f'<rect x="{x}" y="30" width="11" height="11" fill="{colour}"/>')
        parts.append(f'<text x="{x + 16}" y="40" fill="#444">{escape(name)}</text>')
        x += 34 + 7 * len(name)
    return parts


def _group(
    label: str, values: Sequence[float | None], show: Callable[[float], str], longest: float, top: int
) -> list[str]:
    middle = top + len(values) * _BAR / 2 + 4
    parts = [f'<text x="{_LABELS - 8}" y="{middle:g}" text-anchor="end" fill="#222">{escape(label)}</text>']
    for number, (value, colour) in enumerate(zip(values, _COLOURS, strict=False)):
        if value is not None:
            y, width = top + number * _BAR, max(1.0, _BARS * value / longest)
            parts.append(f'<rect x="{_LABELS}" y="{y}" width="{width:.1f}" height="{_BAR - 2}" fill="{colour}"/>')
            parts.append(f'<text x="{_LABELS + width + 5:.1f}" y="{y + _BAR - 3}" font-size="11" fill="#444">')
            parts[-1] += f"{escape(show(value))}</text>"
    return parts
