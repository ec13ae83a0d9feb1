"""`python -m lab.speed.grammar [MODEL]`: what a constrained reply costs beside a free one.

Both are written by turns, in one run, from the same prompt and with the same number of tokens: the free one goes on
past its end, the constrained one fills a list that has none. A ratio of 1 means that masks cost nothing.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from leftoff.cache.cache import Cache
from leftoff.cache.report import ReuseReport
from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.errors import EngineError
from leftoff.grammar.compile import Grammars
from leftoff.grammar.constraint import GrammarConstraint, Outline
from leftoff.grammar.grammar import Grammar, from_schema
from leftoff.hub.reference import default_model
from leftoff.sampling import Sampling
from leftoff.scheduler.job import Finish, Job, Timings
from leftoff.scheduler.run import Run
from leftoff.scheduler.scheduler import Scheduler
from leftoff.types import Logits, Prompt

_GOAL = 0.95
_NUM_TOKENS = 128
_ROUNDS = 16
_PEOPLE = {
    "type": "array",
    "minItems": 1000,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 3, "maxLength": 40},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "city": {"enum": ["Paris", "Oslo", "Rome"]},
            "friends": {"type": "array", "maxItems": 3, "items": {"type": "string", "maxLength": 20}},
        },
        "required": ["name", "age", "city"],
        "additionalProperties": False,
    },
}


@dataclass(frozen=True)
class Row:
    """Tokens per second, and how they compare, pair by pair."""

    sampling: str
    free: float
    constrained: float
    ratio: float
    low: float
    high: float


class _Sink:
    """Listens to nothing but the end."""

    is_over = False

    def started(self, report: ReuseReport) -> None: ...
    def progress(self, num_read: int) -> None: ...
    def token(self, token: int, logits: Logits | None) -> bool:  # noqa: ARG002
        return True

    def finished(self, finish: Finish, timings: Timings, error: Exception | None) -> None:  # noqa: ARG002
        assert finish is Finish.LENGTH, error or finish
        self.is_over = True


class Bench:
    def __init__(self, engine: LlamaEngine) -> None:
        cache = Cache(engine.memory, num_slots=1, budget_bytes=256 << 20)
        self._scheduler = Scheduler(engine, cache)
        self._vocabulary = engine.model.vocabulary
        self._grammars = Grammars(self._vocabulary)
        self._prompt = Prompt(self._vocabulary.tokenize("A list of people, as JSON:\n"))

    def close(self) -> None:
        self._grammars.close()

    def compare(self, name: str, sampling: Sampling) -> Row:
        grammar = from_schema(_PEOPLE)
        pairs = [(self._speed(sampling, None), self._speed(sampling, grammar)) for _ in range(_ROUNDS + 1)]
        pairs = pairs[1:]  # the first has read the prompt and compiled the schema
        ratios = sorted(constrained / free for free, constrained in pairs)
        free, constrained = (statistics.median(speeds) for speeds in zip(*pairs, strict=True))
        quarter = len(ratios) // 4
        return Row(name, free, constrained, statistics.median(ratios), ratios[quarter], ratios[-1 - quarter])

    def _speed(self, sampling: Sampling, grammar: Grammar | None) -> float:
        """Tokens per second by the quicker steps: what other programs disturb is not the grammar's doing."""
        guide = GrammarConstraint(self._grammars, Outline(grammar)) if grammar else None
        sink = _Sink()
        self._scheduler.submit(
            Run(Job(self._prompt, sampling, max_tokens=_NUM_TOKENS, ignore_end=True, constraint=guide), sink)
        )
        seconds: list[float] = []
        while not sink.is_over:
            began = time.perf_counter()
            self._scheduler.step()
            seconds.append(time.perf_counter() - began)
        return 1 / statistics.quantiles(seconds[1:], n=4)[0]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.speed.grammar", description=__doc__)
    parser.add_argument("model", metavar="MODEL", nargs="?", type=Path, default=default_model(), help="a GGUF file")
    parser.add_argument("--threads", metavar="N", type=int, help="compute threads (default: one per physical core)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    args = parser.parse_args(argv)
    settings = {"threads": args.threads} if args.threads else {}
    try:
        with LlamaEngine.open(args.model, ContextSettings(num_cells=4096, **settings)) as engine:
            bench = Bench(engine)
            rows = [
                bench.compare("the likeliest token", Sampling()),
                bench.compare("top_k 40, top_p 0.95", Sampling(temperature=0.8, top_k=40, top_p=0.95, seed=1)),
            ]
            bench.close()
            _show(engine, rows, as_json=args.json)
    except EngineError as error:
        print(f"lab.speed.grammar: {error}", file=sys.stderr)
        return 1
    return 0


def _show(engine: LlamaEngine, rows: Sequence[Row], *, as_json: bool) -> None:
    name, size = engine.model.name, engine.model.vocabulary.size
    if as_json:
        print(json.dumps({"model": name, "vocabulary": size, "goal": _GOAL, "rows": [*map(asdict, rows)]}))
        return
    table = Table(title=f"{name} · {size:,} tokens · {engine.settings.threads} threads", title_justify="left")
    for header in ("", "free", "constrained", "ratio", "quartiles"):
        table.add_column(header, justify="left" if not header else "right")
    for row in rows:
        speeds = (f"{row.free:,.0f} tokens/s", f"{row.constrained:,.0f} tokens/s")
        table.add_row(row.sampling, *speeds, f"{row.ratio:.3f}", f"{row.low:.3f} to {row.high:.3f}")
    console = Console(markup=False, highlight=False)
    console.print(table)
    verdict = "reached" if all(row.ratio >= _GOAL for row in rows) else "missed"
    console.print(f"Goal: at least {_GOAL}, {verdict}.")


if __name__ == "__main__":
    sys.exit(main())
