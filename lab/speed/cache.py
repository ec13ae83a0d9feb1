"""`python -m lab.speed.cache`: what the cache itself costs, on a tree of a thousand conversations. No model is needed.

Its memory holds no bytes, so that what is timed is Python and nothing else.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from lab.simulate.memory import PaperMemory
from lab.simulate.policies import POLICIES
from leftoff.cache.budget import ByteBudget
from leftoff.cache.cache import Cache
from leftoff.cache.lookup import Lookup
from leftoff.cache.plan import Planner
from leftoff.cache.tree import Tree
from leftoff.engine.memory.base import MemoryKind, Snapshot
from leftoff.types import Prompt, Tokens

UNLIMITED = 1 << 60
HEADER = 8_000
LONG = 100_000
SHORT = 2_000  # tokens of the other conversations, behind the header
GAP = 64
PAGE = 256


@dataclass(frozen=True)
class Timing:
    """The median of several runs. `goal` is the most it should be."""

    name: str
    value: float
    unit: str
    goal: float | None = None

    @property
    def is_reached(self) -> bool | None:
        return None if self.goal is None else self.value < self.goal


@dataclass(frozen=True)
class Forest:
    """A cache with a thousand conversations under one header, one of them very long."""

    cache: Cache
    memory: PaperMemory
    long: Tokens

    @property
    def tree(self) -> Tree:
        return self.cache.ram.trees[""]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.speed.cache", description=__doc__)
    parser.add_argument("--conversations", metavar="N", type=int, default=1000)
    parser.add_argument("--points", metavar="N", type=int, default=10_000, help="candidates for eviction")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    args = parser.parse_args(argv)
    forest = grow(args.conversations)
    timings = [*time_planning(forest), *time_requests(forest), *time_evictions(args.points)]
    num_points = forest.cache.ram.budget.num_points
    if args.json:
        about = {"conversations": args.conversations, "tree_tokens": forest.tree.num_tokens, "points": num_points}
        print(json.dumps(about | {"timings": [asdict(timing) for timing in timings]}))
    else:
        title = f"{args.conversations:,} conversations · {forest.tree.num_tokens:,} tokens · {num_points:,} points"
        Console(markup=False, highlight=False).print(_table(title, timings))
    return 0


def paper_memory() -> PaperMemory:
    """A memory on paper with the sizes of a 35B hybrid model: 20 KiB per token, 62 MiB per snapshot."""
    return PaperMemory(MemoryKind.HYBRID, 20 << 10, 62 << 20, num_sequences=4, num_cells=1 << 20)


def grow(num_conversations: int) -> Forest:
    """Built without an engine: a snapshot every few tokens, and pages over everything."""
    rng = np.random.default_rng(1)
    memory = paper_memory()
    cache = Cache(memory, num_slots=3, budget_bytes=UNLIMITED)
    tree = cache.ram.trees.setdefault("", Tree())
    header, long = _words(rng, HEADER), _words(rng, LONG - HEADER)
    first = np.concatenate([header, long])
    _keep(cache.ram.budget, tree, memory, first, 0)
    for _ in range(num_conversations - 1):
        _keep(cache.ram.budget, tree, memory, np.concatenate([header, _words(rng, SHORT)]), HEADER)
    return Forest(cache, memory, first)


def _keep(store: ByteBudget, tree: Tree, memory: PaperMemory, tokens: Tokens, start: int) -> None:
    match = tree.insert(tokens, 0.0)
    for begin in range(start, tokens.size, PAGE):
        store.add_page(match, *memory.save_pages(0, [(begin, min(begin + PAGE, int(tokens.size)))]))
    for position in range(start + GAP, int(tokens.size) + 1, GAP):
        store.add_point(match, position, Snapshot(position, memory.save_snapshot(0).data))


def _words(rng: np.random.Generator, size: int) -> Tokens:
    return rng.integers(0, 150_000, size).astype(np.int32)


def time_planning(forest: Forest) -> list[Timing]:
    tokens, tree = np.concatenate([forest.long[:-100], _words(np.random.default_rng(2), 100)]), forest.tree
    planner = Planner(forest.memory, forest.cache.costs)
    sequences = forest.cache.sequences
    for sequence in sequences.slots:
        sequence.start(forest.long[:HEADER], "")
    matching = median_ms(lambda: tree.match(tokens))

    def plan() -> None:
        planner.best(Lookup(tokens, "", tree.match(tokens), shared=sequences.shared_with(tokens, "")))

    planning = median_ms(plan)
    for sequence in sequences.slots:
        sequence.finish(0, now=0.0)
    return [
        Timing(f"match {LONG:,} tokens, per 10,000", matching * 10_000 / LONG, "ms", 1.0),
        Timing(f"plan {LONG:,} tokens", planning, "ms", 5.0),
    ]


def time_requests(forest: Forest) -> list[Timing]:
    """Whole turns of 100 new tokens, less the engine's part."""
    timings = []
    for name, start in (("short", forest.long[: HEADER // 4]), ("long", forest.long)):
        rng, text = np.random.default_rng(3), start
        parts: list[tuple[float, float, float]] = []
        for _ in range(9):
            text = np.concatenate([text, _words(rng, 100)])
            parts.append(_turn(forest, text))
        for part, values in zip(("begin", "advance", "finish"), zip(*parts[1:], strict=True), strict=True):
            timings.append(Timing(f"{part}, {name} prompt ({start.size:,} tokens)", statistics.median(values), "ms"))
    return timings


def _turn(forest: Forest, text: Tokens) -> tuple[float, float, float]:
    """Milliseconds of `begin`, of one `advance` without a snapshot, and of `finish`."""
    cache = forest.cache
    began = time.perf_counter()
    turn = cache.begin(Prompt(text))
    assert turn is not None
    begun = time.perf_counter()
    while turn.is_reading:
        chunk = text[turn.position : turn.next_chunk_end]
        forest.memory.extend(turn.seq, int(chunk.size))
        cache.advance(turn, chunk)
    advancing = []
    for token in text[:20]:
        chunk = np.array([token], np.int32)
        forest.memory.extend(turn.seq, 1)
        before = time.perf_counter()
        cache.advance(turn, chunk)
        advancing.append(time.perf_counter() - before)
    before = time.perf_counter()
    cache.finish(turn)
    return 1000 * (begun - began), 1000 * statistics.median(advancing), 1000 * (time.perf_counter() - before)


def time_evictions(num_points: int) -> list[Timing]:
    """One at a time out of many, as in a cache that is full."""
    rng, memory = np.random.default_rng(4), paper_memory()
    timings = []
    for name, policy in POLICIES.items():
        store, tree = ByteBudget("RAM", UNLIMITED, policy(), time.monotonic), Tree()
        while store.num_points < num_points:
            _keep(store, tree, memory, _words(rng, SHORT), 0)

        def evict(store: ByteBudget = store) -> None:
            store.capacity.nbytes = store.used_bytes
            store.make_room(1)

        timings.append(Timing(f"evict one of {num_points:,}, {name}", median_ms(evict, 200), "ms", 1.0))
    return timings


def median_ms(action: Callable[[], object], times: int = 31) -> float:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        action()
        taken.append(time.perf_counter() - began)
    return 1000 * statistics.median(taken)


def _table(title: str, timings: Sequence[Timing]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for header in ("median", "goal", ""):
        table.add_column(header, justify="right")
    for row in timings:
        goal = f"< {row.goal:g} {row.unit}" if row.goal is not None else ""
        verdict = "" if row.is_reached is None else ("reached" if row.is_reached else "missed")
        table.add_row(row.name, f"{row.value:.3f} {row.unit}", goal, verdict)
    return table


if __name__ == "__main__":
    sys.exit(main())
