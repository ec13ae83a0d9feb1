"""A comparison as JSON: every run, and the medians with their spread."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from lab.bench.comparison import Comparison, Outcome

_FIGURES = (
    *("computed", "unavoidable", "ratio", "cached"),
    *("first_token_p50", "first_token_p95", "wall_ms", "peak_bytes"),
)


def record(comparisons: Sequence[Comparison]) -> str:
    return json.dumps([_comparison(comparison) for comparison in comparisons], indent=2) + "\n"


def _comparison(comparison: Comparison) -> dict[str, Any]:
    return {
        "command": comparison.command,
        "facts": comparison.facts,
        "rounds": comparison.num_rounds,
        "workloads": {
            played.workload.name: {
                "title": played.workload.title,
                "setup": asdict(played.workload.setup),
                "servers": {outcome.side: _outcome(outcome) for outcome in played.outcomes},
            }
            for played in comparison.played
        },
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    figures = {name: getattr(outcome, name) for name in _FIGURES}
    return {
        **{name: asdict(figure) if figure else None for name, figure in figures.items()},
        "runs": [asdict(run) for run in outcome.runs],
    }
