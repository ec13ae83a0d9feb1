"""What a comparison says, in sentences: bars that are held or broken, and where leftoff is the worse one."""

from collections.abc import Callable, Iterator

from lab.bench.comparison import Comparison, Figure, Outcome, Played
from lab.bench.table import quotient, show_times

ALLOWED = 1.03

_ENOUGH_ROUNDS = 3  # to judge times by

_COUNTS: dict[str, Callable[[Outcome], Figure | None]] = {
    # not the tokens alone: where replies differ by a word, so do the prompts that follow
    "computed / unavoidable": lambda outcome: outcome.ratio,
    "peak RSS": lambda outcome: outcome.peak_bytes,
}
_TIMES: dict[str, Callable[[Outcome], Figure | None]] = {
    "first token p50": lambda outcome: outcome.first_token_p50,
    "first token p95": lambda outcome: outcome.first_token_p95,
    "wall time": lambda outcome: outcome.wall_ms,
}


def findings(comparison: Comparison) -> list[str]:
    return [*_bars(comparison), *_losses(comparison), *_oddities(comparison)]


def _bars(comparison: Comparison) -> Iterator[str]:
    for number, side in enumerate(comparison.sides):
        ratios = {played.workload.title: played.outcomes[number].ratio for played in comparison.played}
        over = [f"{title} {ratio.high:.2f}" for title, ratio in ratios.items() if ratio and ratio.high > ALLOWED]
        if any(ratios.values()):
            yield f"{side}: computed / unavoidable is above {ALLOWED} in {_listed(over)}."


def _losses(comparison: Comparison) -> Iterator[str]:
    """Where every run of the other was better than every run of leftoff: what overlaps is a draw."""
    measures = _COUNTS | (_TIMES if comparison.num_rounds >= _ENOUGH_ROUNDS else {})
    for number, side in enumerate(comparison.sides[1:], 1):
        for name, measure in measures.items():
            lost = [
                f"{played.workload.title} ({show_times(1 / figure.median)})"
                for played in comparison.played
                if _is_lost(played, number, measure)
                and (figure := quotient(played.outcomes[number], played.own, measure))
            ]
            yield f"{comparison.sides[0]} takes more than {side}, {name}: {_listed(lost)}."


def _is_lost(played: Played, number: int, measure: Callable[[Outcome], Figure | None]) -> bool:
    ours, theirs = measure(played.own), measure(played.outcomes[number])
    return bool(ours and theirs and ours.low > theirs.high)


def _oddities(comparison: Comparison) -> Iterator[str]:
    for played in comparison.played:
        for outcome in played.outcomes:
            refused = max(run.num_refused for run in outcome.runs)
            miscounted = max(run.num_miscounted for run in outcome.runs)
            where = f"{played.workload.title}: {outcome.side}"
            if refused:
                yield f"{where} refused {refused} requests, and the client asked again with less."
            if miscounted:
                yield f"{where} read {miscounted} prompts otherwise than its template says."


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "no workload"
