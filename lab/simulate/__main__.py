"""`python -m lab.simulate` plays a trace against the cache, and against models of other servers' caches."""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import groupby
from multiprocessing import active_children
from pathlib import Path
from types import FrameType
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from lab.simulate.comparison import Comparison, Result, Run
from lab.simulate.fleet.report import results, show, show_json
from lab.simulate.fleet.routers import ROUTERS
from lab.simulate.llm import LLMS, Llm
from lab.simulate.reading import SAMPLE, read_recording
from lab.simulate.scheme import Budget
from lab.simulate.schemes import SCHEMES, USUAL
from lab.simulate.trace import Recording, TraceError
from leftoff.cli.flags import CommandLine, positive
from leftoff.cli.main import run_command
from leftoff.cli.progress import show_stages
from leftoff.cli.signals import handled_by
from leftoff.errors import reason_of
from leftoff.units import show_count, show_ms

_GIB = 1 << 30
_RAM_GIB = (8, 16, 32, 64)
_SESSIONS = (8,)
_SIGNALS = (signal.SIGINT, signal.SIGTERM)

T = TypeVar("T")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return run_command(_parser, sys.argv[1:] if argv is None else argv)


def _parser() -> CommandLine:
    parser = CommandLine(
        prog="python -m lab.simulate",
        description="Counts the tokens that are read when a TRACE is played against the cache, without an engine.",
        epilog="A TRACE has one JSON object per line: requests of Claude Code (`blocks`) or of Mooncake (`hash_ids`).",
    )
    parser.add_argument(
        "trace",
        metavar="TRACE",
        nargs="?",
        type=Path,
        default=SAMPLE,
        help="a file (default: a sample)",
    )
    parser.add_argument("--model", choices=LLMS, default=next(iter(LLMS)), help="whose sizes (default: %(default)s)")
    parser.add_argument("--prefill", metavar="RATE", type=positive, help="tokens it reads per second")
    parser.add_argument(
        "--ram", metavar="GIB,…", type=_list_of(positive), default=_RAM_GIB, help="budgets (default: 8,16,32,64)"
    )
    parser.add_argument("--disk", metavar="GIB", type=positive, default=0, help="a second tier of this size")
    parser.add_argument(
        "--sessions",
        metavar="N,…",
        type=_list_of(positive),
        default=_SESSIONS,
        help="how many run at a time (default: 8)",
    )
    parser.add_argument(
        "--schemes",
        metavar="NAME,…",
        type=_list_of(_scheme),
        default=USUAL,
        help=f"of {', '.join(SCHEMES)} (default: the first eight)",
    )
    fleet = parser.add_argument_group("a fleet", "Several replicas that share a store, under a router.")
    fleet.add_argument(
        "--replicas", metavar="N,…", type=_list_of(positive), help="play a fleet; --sessions is for each replica then"
    )
    fleet.add_argument(
        "--router",
        metavar="NAME,…",
        type=_list_of(_router),
        default=tuple(ROUTERS),
        help=f"of {', '.join(ROUTERS)} (default: all)",
    )
    fleet.add_argument("--store-gbit", metavar="RATE", type=float, default=10.0, help="per replica; 0 for no store")
    fleet.add_argument("--store-ms", metavar="MS", type=float, default=20.0, help="latency of a fetch (default: 20)")
    fleet.add_argument("--generate", metavar="N", type=positive, help="sessions (default: four for each at a time)")
    parser.add_argument("--json", action="store_true", help="print one JSON object for programs, and nothing else")
    parser.set_defaults(run=_play)
    return parser


def _play(args: argparse.Namespace) -> int:
    console = Console(markup=False, highlight=False)
    llm = LLMS[args.model]
    llm = replace(llm, prefill_tokens_per_s=args.prefill) if args.prefill else llm
    recording = _read(args.trace)
    if args.replicas:
        return _play_fleets(console, recording, llm, args)
    runs = [
        Run(scheme, sessions, Budget(ram * _GIB, args.disk * _GIB))
        for sessions in args.sessions
        for ram in args.ram
        for scheme in args.schemes
    ]
    results, began = [], time.perf_counter()
    is_watched = sys.stdout.isatty() and not args.json
    playing = Comparison(recording, llm).results(runs, os.cpu_count() or 1)
    with handled_by(partial(_end, console), *_SIGNALS), show_stages(console, visible=is_watched) as begin:
        advance = begin(f"playing {recording.name} {len(runs)} times")
        for result in playing:
            results.append(result)
            advance(len(results) / len(runs))
    if args.json:
        print(json.dumps({"trace": recording.name, "model": asdict(llm), "results": [*map(_as_dict, results)]}))
    else:
        _show(console, recording.name, llm, results)
        _show_pace(console, results, time.perf_counter() - began)
    return 0


def _play_fleets(console: Console, recording: Recording, llm: Llm, args: argparse.Namespace) -> int:
    found = list(results(recording, llm, args))
    if args.json:
        print(show_json(recording, llm, found))
    else:
        show(console, found)
    return 0


def _end(console: Console, number: int, _frame: FrameType | None) -> None:
    """Ends at once, with the workers: nothing is to be saved, and waiting for what they play takes long."""
    for child in active_children():
        child.terminate()
    console.show_cursor()
    console.file.flush()
    os._exit(128 + number)


def _read(trace: Path) -> Recording:
    try:
        return read_recording(trace)
    except OSError as error:
        reason = reason_of(error)
        raise TraceError(f"TRACE {trace}: it cannot be read ({reason}). Left out, a sample is played") from None


def _show(console: Console, name: str, llm: Llm, results: Sequence[Result]) -> None:
    first = results[0]
    console.print(
        f"{name}: {first.outcome.num_requests:,} requests, {show_count(first.outcome.prompt_tokens)} prompt tokens,"
        f" {show_count(first.unavoidable_tokens)} of them unavoidable"
    )
    console.print(f"{llm.name}: reads {llm.prefill_tokens_per_s:,.0f} tokens/s")
    for (sessions, budget), group in groupby(results, key=lambda result: (result.run.num_sessions, result.run.budget)):
        console.print(f"\n{sessions} sessions at a time, {_shown(budget)}", style="bold")
        console.print(_table(group))


def _show_pace(console: Console, results: Sequence[Result], seconds: float) -> None:
    played = sum(result.outcome.num_requests for result in results)
    console.print(f"{played:,} requests played in {seconds:.1f} s: {played / seconds:,.0f} a second", style="dim")


def _shown(budget: Budget) -> str:
    disk = f" and {budget.disk_bytes // _GIB} GiB on disk" if budget.disk_bytes else ""
    return f"{budget.ram_bytes // _GIB} GiB of RAM{disk}"


def _table(results: Iterable[Result]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="cyan")
    table.add_column("scheme", no_wrap=True)
    for name in ("hits", "read", "over least", "TTFT", "p50", "p95"):
        table.add_column(name, justify="right", no_wrap=True)
    for result in results:
        outcome = result.outcome
        table.add_row(
            result.run.scheme,
            f"{outcome.hit_rate:.1%}",
            show_count(outcome.computed_tokens),
            f"{result.over_unavoidable:.3f}",
            *map(show_ms, (outcome.ttft_mean_ms, outcome.ttft_p50_ms, outcome.ttft_p95_ms)),
        )
    return table


def _as_dict(result: Result) -> dict[str, object]:
    derived = {"hit_rate": result.outcome.hit_rate, "unavoidable_tokens": result.unavoidable_tokens}
    run = result.run
    named = {"scheme": run.scheme, "sessions": run.num_sessions, **asdict(run.budget)}
    return named | asdict(result.outcome) | derived | {"over_unavoidable": result.over_unavoidable}


def _scheme(text: str) -> str:
    if text not in SCHEMES:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(SCHEMES)}")
    return text


def _router(text: str) -> str:
    if text not in ROUTERS:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(ROUTERS)}")
    return text


def _list_of(read: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    return lambda text: tuple(map(read, text.split(",")))


if __name__ == "__main__":
    sys.exit(main())
