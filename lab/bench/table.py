"""One table of a comparison, as texts; how it is drawn is up to others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lab.bench.comparison import Comparison, Figure, Outcome, Played

COLUMNS = (
    *("workload", "server", "computed", "unavoidable", "ratio", "cached"),
    *("first token p50", "p95", "wall time", "peak RSS"),
)
NOTHING = "-"

Show = Callable[[float], str]


@dataclass(frozen=True)
class Row:
    """`is_quotient`: the row above it divided by the one of leftoff."""

    cells: tuple[str, ...]
    is_quotient: bool = False


def rows(comparison: Comparison) -> list[Row]:
    return [row for played in comparison.played for row in _rows(played)]


def show_tokens(tokens: float) -> str:
    return f"{tokens:,.0f}"


def show_ms(ms: float) -> str:
    return f"{ms:,.0f} ms" if ms < 1000 else f"{ms / 1000:,.1f} s"


def show_mib(num_bytes: float) -> str:
    return f"{num_bytes / (1 << 20):,.0f} MiB"


def show_times(quotient: float) -> str:
    return f"{quotient:,.0f}x" if quotient >= 99.5 else f"{quotient:.1f}x" if quotient >= 9.95 else f"{quotient:.2f}x"


def quotient(other: Outcome, own: Outcome, measure: Callable[[Outcome], Figure | None]) -> Figure | None:
    """How many times more the other takes, round by round."""
    pairs = [
        (measure(Outcome(other.side, (theirs,))), measure(Outcome(own.side, (ours,))))
        for theirs, ours in zip(other.runs, own.runs, strict=True)
    ]
    return Figure.of(theirs.median / ours.median for theirs, ours in pairs if theirs and ours and ours.median)


def _rows(played: Played) -> list[Row]:
    made = []
    for number, outcome in enumerate(played.outcomes):
        made.append(Row((played.workload.title if number == 0 else "", *_cells(outcome))))
        if number > 0:
            made.append(Row(("", *_quotient_cells(outcome, played.own)), is_quotient=True))
    return made


def _cells(outcome: Outcome) -> tuple[str, ...]:
    return (
        outcome.side,
        _shown(outcome.computed, show_tokens),
        _shown(outcome.unavoidable, show_tokens),
        _shown(outcome.ratio, lambda ratio: f"{ratio:.3f}"),
        _shown(outcome.cached, show_tokens),
        _shown(outcome.first_token_p50, show_ms),
        _shown(outcome.first_token_p95, show_ms),
        _shown(outcome.wall_ms, show_ms),
        _shown(outcome.peak_bytes, show_mib),
    )


def _quotient_cells(other: Outcome, own: Outcome) -> tuple[str, ...]:
    measures: Sequence[Callable[[Outcome], Figure | None] | None] = (
        lambda outcome: outcome.computed,
        *(None, None, None),
        lambda outcome: outcome.first_token_p50,
        lambda outcome: outcome.first_token_p95,
        lambda outcome: outcome.wall_ms,
        lambda outcome: outcome.peak_bytes,
    )
    cells = [_shown(quotient(other, own, measure), show_times) if measure else "" for measure in measures]
    return (f"{other.side} / {own.side}", *cells)


def _shown(figure: Figure | None, show: Show) -> str:
    """The spread only where one sees it."""
    if figure is None:
        return NOTHING
    low, high = show(figure.low), show(figure.high)
    return show(figure.median) if low == high else f"{show(figure.median)} ({_range(low, high)})"


def _range(low: str, high: str) -> str:
    """A unit that both have is said once."""
    unit = high.lstrip("0123456789.,")
    return f"{low.removesuffix(unit)} … {high}"
