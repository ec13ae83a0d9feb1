"""The charts as one PNG, for those who have matplotlib; nothing else here needs it."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.bench.chart import COLOURS, Chart
from lab.bench.errors import BenchError

_INCHES, _INCHES_PER_BAR, _DPI = 9.0, 0.16, 150


def write(charts: Sequence[Chart], path: Path) -> None:
    heights = [1.2 + _INCHES_PER_BAR * len(chart.labels) * (len(chart.series) + 1) for chart in charts]
    figure, all_axes = plotter().subplots(
        len(charts), 1, squeeze=False, figsize=(_INCHES, sum(heights)), height_ratios=heights, layout="constrained"
    )
    for chart, (axes,) in zip(charts, all_axes, strict=True):
        _draw(chart, axes)
    figure.savefig(path, dpi=_DPI, format="png")
    plotter().close(figure)


def plotter() -> Any:  # noqa: ANN401
    """Told before hours of work, not after."""
    try:
        importlib.import_module("matplotlib").use("Agg")
        return importlib.import_module("matplotlib.pyplot")
    except ImportError:
        raise BenchError(
            "--png needs matplotlib: pip install matplotlib, or take --html, which needs nothing"
        ) from None


def _draw(chart: Chart, axes: Any) -> None:  # noqa: ANN401
    step = 1 / (len(chart.series) + 1)
    for number, name in enumerate(chart.series):
        places = [row + number * step for row in range(len(chart.labels))]
        values = [row[number] for row in chart.values]
        widths = [value or 0.0 for value in values]
        bars = axes.barh(places, widths, height=step, color=COLOURS[number % len(COLOURS)], label=name)
        shown = ["" if value is None else chart.show(value) for value in values]
        axes.bar_label(bars, shown, padding=3, fontsize=7)
    axes.set_yticks([row + (len(chart.series) - 1) * step / 2 for row in range(len(chart.labels))], chart.labels)
    axes.invert_yaxis()
    axes.set_title(chart.title)
    axes.legend(fontsize=8)
