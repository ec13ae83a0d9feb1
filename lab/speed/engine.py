"""`python -m lab.speed.engine [MODEL]`: what the engine costs on top of llama.cpp, and how fast it moves memory.

Times mean little on a shared machine; the ratios, taken in one run, are what to look at.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lab.speed.compare import Comparison, StepCost, compare_copies, compare_prefill, compare_steps
from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.errors import EngineError

_GOAL_US = 100
_STEPS_S = 3.0


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    settings = {"threads": args.threads} if args.threads else {}
    try:
        with LlamaEngine.open(args.model or _factory_model(), ContextSettings(num_cells=4096, **settings)) as engine:
            cost = compare_steps(engine, _STEPS_S)
            comparisons = [cost.step, compare_prefill(engine), *compare_copies(engine)]
            _show(engine, cost, comparisons, as_json=args.json)
    except EngineError as error:
        print(f"lab.speed.engine: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.speed.engine", description=__doc__)
    parser.add_argument("model", metavar="MODEL", nargs="?", type=Path, help="a GGUF file (default: a random hybrid)")
    parser.add_argument("--threads", metavar="N", type=int, help="compute threads (default: one per physical core)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    return parser


def _factory_model() -> Path:
    # Only here: with a model of one's own the tests need not be there.
    from tests.factory import Scale, model_path  # noqa: PLC0415

    return model_path("qwen35", Scale(width=4, depth=4))


def _show(engine: LlamaEngine, cost: StepCost, comparisons: Sequence[Comparison], *, as_json: bool) -> None:
    name, kind, threads = engine.model.name, engine.memory.kind.value, engine.settings.threads
    if as_json:
        rows = [asdict(comparison) | {"ratio": comparison.ratio} for comparison in comparisons]
        about = {"model": name, "memory_kind": kind, "threads": threads, "goal_us": _GOAL_US}
        python = {"python_us_per_step": cost.python_us, "python_us_by_difference": cost.difference_us}
        print(json.dumps({**about, **python, "comparisons": rows}))
        return
    console = Console(markup=False, highlight=False)
    console.print(_table(f"{name} · {kind} · {threads} threads", comparisons))
    verdict = "reached" if cost.difference_us < _GOAL_US else "missed"
    over = f"A decode step takes {cost.difference_us:.0f} µs more than the bare loop's"
    console.print(f"{over} (goal: under {_GOAL_US} µs, {verdict}).")
    console.print(f"Its time outside llama.cpp is {cost.python_us:.0f} µs, choosing the likeliest token included.")


def _table(title: str, comparisons: Sequence[Comparison]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for header in ("engine", "reference", "ratio"):
        table.add_column(header, justify="right")
    for row in comparisons:
        reference = f"{row.reference:,.1f} {row.unit} ({row.reference_name})"
        table.add_row(row.name, f"{row.engine:,.1f} {row.unit}", reference, f"{row.ratio:.3f}")
    return table


if __name__ == "__main__":
    sys.exit(main())
