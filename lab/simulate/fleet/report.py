"""Runs fleets of several sizes under several routers, and shows what came out, with the cost of the index."""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import groupby

from rich.console import Console
from rich.table import Table

from lab.simulate.fleet.fleet import Fleet, FleetOutcome, Play, single_machine
from lab.simulate.fleet.replica import Line
from lab.simulate.fleet.sessions import conversations, generate
from lab.simulate.llm import Llm
from lab.simulate.trace import Recording, Session
from leftoff.blobs.path_hash import RUN_TOKENS
from leftoff.cache.tiers import PAGE_TOKENS
from leftoff.units import show_count, show_ms

_GIB = 1 << 30
_LANES = 4  # sessions that are generated for each that runs at a time


@dataclass(frozen=True)
class IndexCost:
    """What the index does for one request, on average, and holds for one session: `leftoff.store.keys` has the keys.

    A lookup is two round trips. The first asks for a bitmap of every 1,024 tokens of the prompt; the second, in the
    worst case, for each place where a blob may end. A blob that is put takes a bit, a field, and an entry by its age.
    """

    bitmaps_read: float
    places_read: float
    writes: float
    entries_per_session: float


@dataclass(frozen=True)
class FleetResult:
    """One run beside the single machine that serves the same sessions."""

    fleet: Fleet
    outcome: FleetOutcome
    single_tokens: int
    index: IndexCost | None

    @property
    def over_single(self) -> float:
        return self.outcome.computed_tokens / self.single_tokens


def results(recording: Recording, llm: Llm, args: argparse.Namespace) -> Iterator[FleetResult]:
    """All sizes and routers that were asked for, one after the other."""
    line = Line(args.store_gbit * 1e9 / 8, args.store_ms / 1000) if args.store_gbit else None
    for num_replicas in args.replicas:
        sessions = _sessions(recording, num_replicas * args.sessions[0], args.generate)
        single = 0
        for router in args.router:
            fleet = Fleet(num_replicas, router, args.ram[0] * _GIB, line)
            single = single or single_machine(sessions, recording.block_tokens, llm, fleet)
            outcome = Play(sessions, recording.block_tokens, llm, fleet).run()
            yield FleetResult(fleet, outcome, single, _index_cost(outcome, len(sessions)))


def _sessions(recording: Recording, num_lanes: int, num_sessions: int | None) -> list[Session]:
    """Generated ones; if the recording is one long row of requests, its own, at their own times."""
    if len(recording.sessions) == 1:
        return conversations(recording.sessions[0])
    return generate(recording, num_lanes, num_sessions or _LANES * num_lanes)


def _index_cost(outcome: FleetOutcome, num_sessions: int) -> IndexCost | None:
    stock = outcome.stock
    if stock is None:
        return None
    tokens = outcome.prompt_tokens / outcome.num_requests
    num_blobs = stock.page_tokens / PAGE_TOKENS + stock.num_snapshots
    return IndexCost(
        bitmaps_read=tokens / RUN_TOKENS,
        places_read=tokens / PAGE_TOKENS,
        writes=num_blobs / outcome.num_requests,
        entries_per_session=num_blobs / num_sessions,
    )


def show_json(recording: Recording, llm: Llm, found: list[FleetResult]) -> str:
    """All figures for programs."""
    rows = [
        asdict(result.fleet)
        | asdict(result.outcome)
        | {"single_tokens": result.single_tokens, "over_single": result.over_single}
        | {"index": asdict(result.index) if result.index else None}
        for result in found
    ]
    return json.dumps({"trace": recording.name, "model": asdict(llm), "results": rows})


def show(console: Console, found: list[FleetResult]) -> None:
    """A table for each size of the fleet."""
    for num_replicas, group in groupby(found, key=lambda result: result.fleet.num_replicas):
        rows = list(group)
        first = rows[0]
        line = first.fleet.line
        store = f"store at {line.bytes_per_s * 8e-9:g} Gbit/s, {1000 * line.latency_s:g} ms" if line else "no store"
        console.print(
            f"\n{num_replicas} replicas of {first.fleet.ram_bytes // _GIB} GiB, {store}: "
            f"{first.outcome.num_requests:,} requests; one machine computes {show_count(first.single_tokens)}",
            style="bold",
        )
        console.print(_table(rows))
        if (index := rows[-1].index) is not None:
            console.print(
                f"index, per request: {index.bitmaps_read:.0f} bitmaps and at most {index.places_read:.0f} places read "
                f"in two round trips, {index.writes:.0f} blobs noted; per session: {index.entries_per_session:,.0f}",
                style="dim",
            )


def _table(rows: list[FleetResult]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="cyan")
    table.add_column("router", no_wrap=True)
    for name in ("read", "over one", "TTFT", "p50", "p95", "busiest", "moved"):
        table.add_column(name, justify="right", no_wrap=True)
    for result in rows:
        outcome = result.outcome
        table.add_row(
            result.fleet.router,
            show_count(outcome.computed_tokens),
            f"{result.over_single:.3f}",
            *map(show_ms, (outcome.ttft_mean_ms, outcome.ttft_p50_ms, outcome.ttft_p95_ms)),
            f"{outcome.most_over_mean:.2f}",
            f"{outcome.moved:.1%}",
        )
    return table
