"""`python -m lab.bench` plays what clients do against servers, side by side, and prints a table of each."""

import argparse
import os
import secrets
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from lab.bench import markdown, record, side
from lab.bench.comparison import Comparison, Match, Report
from lab.bench.facts import facts, how
from lab.bench.findings import findings
from lab.bench.table import COLUMNS, rows
from lab.bench.workload import COLD, USUAL, WORKLOADS, Workload
from leftoff.cli.flags import CommandLine
from leftoff.cli.main import run_command
from leftoff.cli.signals import ended_by_signals
from leftoff.hub.reference import default_model, find_model
from leftoff.machine import default_threads
from leftoff.setting import SettingError

_OPPONENTS = {"llama-server": side.llama_server, "cold": side.cold, "deterministic": side.deterministic}
_ROUNDS, _QUICK_SCALE, _SEED = 3, 0.15, 7
_TABLE_WIDTH = 170  # a narrower window breaks the lines, but not the columns


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return run_command(_parser, sys.argv[1:] if argv is None else argv)


def _parser() -> CommandLine:
    parser = CommandLine(
        prog="python -m lab.bench",
        usage="python -m lab.bench [MODEL] [options]",
        description="Plays workloads on servers that it starts itself, or on running ones, and prints one table.",
    )
    parser.add_argument("model", metavar="MODEL", nargs="?", help="GGUF file, or org/repo[:quant] of the hub")
    parser.add_argument("--url", action="append", help="play on this server; may be given several times")
    parser.add_argument("--api-key", default="", metavar="KEY", help="what the servers at --url want")
    parser.add_argument(
        "--against",
        action="append",
        choices=_OPPONENTS,
        help="start this one too, and play in turn: llama-server; cold, a leftoff that forgets before each request; "
        "deterministic, one with that flag",
    )
    parser.add_argument(
        "--workload", nargs="+", choices=WORKLOADS, metavar="NAME", help=f"only these of {', '.join(WORKLOADS)}"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help=f"how often (default: {_ROUNDS}; 1 with --quick)")
    parser.add_argument("--quick", action="store_true", help="short texts, one round: the counts, and hardly the times")
    parser.add_argument("--threads", type=int, metavar="N", help="of each server (default: one per physical core)")
    parser.add_argument("--json", dest="json_file", metavar="FILE", help="write every run as JSON")
    parser.add_argument(
        "--markdown", nargs="+", default=(), metavar="FILE", help="write tables and plots at their places there"
    )
    parser.set_defaults(run=_play)
    return parser


def _play(args: argparse.Namespace) -> int:
    console = Console(markup=False, highlight=False, emoji=False)
    _check_files(args)
    matches = [(opponent, _match(args, opponent)) for opponent in _opponents(args)]
    comparisons = []
    with ended_by_signals(), _progress(console, sum(match.num_plays for _, match in matches)) as report:
        for opponent, match in matches:
            comparisons.append(_comparison(args, opponent, match, report))
            _write(args, comparisons)  # as soon as there is something: a long run may be interrupted
    wide = Console(markup=False, highlight=False, emoji=False, width=max(console.width, _TABLE_WIDTH))
    for comparison in comparisons:
        _show(wide, comparison)
    return 0


def _check_files(args: argparse.Namespace) -> None:
    """A run may take an hour: what could not be written in the end is refused at the beginning."""
    for option, name in [("--json", args.json_file), *(("--markdown", name) for name in args.markdown)]:
        if name:
            _check_place(f"{option} {name}", Path(name))


def _check_place(flag: str, file: Path) -> None:
    folder = file.parent
    if not folder.is_dir():
        raise SettingError(f"{flag}: there is no folder {folder}: make it, or name another file")
    if file.is_dir() or not os.access(file if file.exists() else folder, os.W_OK):
        raise SettingError(f"{flag}: it cannot be written: name another file")


def _opponents(args: argparse.Namespace) -> list[str]:
    if args.url and (args.against or args.model):
        raise SettingError("--url plays on servers that run already: leave out --against and MODEL")
    if args.rounds is not None and args.rounds < 1:
        raise SettingError(f"--rounds {args.rounds}: must be at least 1")
    return list(dict.fromkeys(args.against or [""]))


def _match(args: argparse.Namespace, opponent: str) -> Match:
    num_rounds = _num_rounds(args)
    # A server that runs already may know the texts of the last time.
    seeds = [secrets.randbits(32) if args.url else _SEED for _ in range(num_rounds)]
    scale = _QUICK_SCALE if args.quick else 1.0
    workloads = tuple(workload.scaled(scale) for workload in _workloads(args, opponent))
    return Match(_sides(args, opponent), workloads, tuple(seeds), scale)


def _sides(args: argparse.Namespace, opponent: str) -> tuple[side.Side, ...]:
    if args.url:
        return tuple(side.Running(url.rstrip("/"), args.api_key) for url in dict.fromkeys(args.url))
    makers = [side.leftoff, *([_OPPONENTS[opponent]] if opponent else [])]
    return tuple(make(_model(args), _threads(args)) for make in makers)


def _workloads(args: argparse.Namespace, opponent: str) -> tuple[Workload, ...]:
    usual = COLD if opponent == "cold" else USUAL
    wanted = [WORKLOADS[name] for name in dict.fromkeys(args.workload or usual)]
    impossible = [workload.name for workload in wanted if args.url and workload.needs_own_server]
    if args.workload and impossible:
        raise SettingError(f"{', '.join(impossible)}: needs a server that it starts itself: leave out --url")
    return tuple(workload for workload in wanted if workload.name not in impossible)


def _comparison(args: argparse.Namespace, opponent: str, match: Match, report: Report) -> Comparison:
    names, num_rounds = tuple(side.name for side in match.sides), len(match.seeds)
    known = [how(num_rounds)]
    if not args.url:
        known = facts(_model(args), _threads(args), match.workloads, names, num_rounds)
    return Comparison(_command(args, opponent), tuple(known), names, num_rounds, match.play(report))


def _command(args: argparse.Namespace, opponent: str) -> str:
    words = ["python", "-m", "lab.bench", *([args.model] if args.model else [])]
    words += [word for url in args.url or () for word in ("--url", url)]
    words += ["--against", opponent] if opponent else []
    words += ["--workload", *args.workload] if args.workload else []
    words += ["--quick"] if args.quick else []
    words += ["--rounds", str(args.rounds)] if args.rounds else []
    words += ["--threads", str(args.threads)] if args.threads else []
    return shlex.join(words)


def _num_rounds(args: argparse.Namespace) -> int:
    return int(args.rounds or (1 if args.quick else _ROUNDS))


def _model(args: argparse.Namespace) -> Path:
    return find_model(args.model) if args.model else default_model()


def _threads(args: argparse.Namespace) -> int:
    return int(args.threads or default_threads())


@contextmanager
def _progress(console: Console, num_plays: int) -> Iterator[Report]:
    # Drawn only between the plays: a thread that redraws would take time from what is measured.
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    is_shown = console.is_terminal
    with Progress(*columns, console=console, transient=True, auto_refresh=False, disable=not is_shown) as progress:
        task = progress.add_task("", total=num_plays)
        begun = count()

        def report(title: str) -> None:
            progress.update(task, completed=next(begun), description=title)
            progress.refresh()

        yield report


def _write(args: argparse.Namespace, comparisons: list[Comparison]) -> None:
    if args.json_file:
        Path(args.json_file).write_text(record.record(comparisons))
    for file in args.markdown:
        markdown.write(comparisons[-1], Path(file))


def _show(console: Console, comparison: Comparison) -> None:
    table = Table(box=None, header_style="bold", padding=(0, 1))
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in COLUMNS[:2] else "right")
    for row in rows(comparison):
        table.add_row(*row.cells, style="dim italic" if row.is_quotient else None)
    console.print(f"\n{comparison.command}", style="bold")
    for fact in comparison.facts:
        console.print(f"  {fact}", style="dim")
    console.print()
    console.print(table)
    console.print()
    for line in findings(comparison):
        console.print(f"  {line}")


if __name__ == "__main__":
    sys.exit(main())
