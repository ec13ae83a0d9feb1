"""`leftoff stats` asks a running server what its cache has spared since the start, client by client."""

import argparse
import json
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from rich.table import Table

from leftoff.cli.flags import CommandLine
from leftoff.cli.prewarm import add_server, connected
from leftoff.cli.terminal import terminal
from leftoff.host.callers import Sums, show_time
from leftoff.units import one_line

CLIENTS = "/cache/clients"


def add_parser(subparsers: "argparse._SubParsersAction[CommandLine]") -> None:
    """Adds the command `stats`."""
    about = "Asks a running server what its cache has spared since the start, client by client."
    parser = subparsers.add_parser("stats", description=about)
    parser.add_argument("--json", action="store_true", help="print the server's answer as it is")
    add_server(parser, of_model=False)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints what was spared; returns the exit code."""
    console = terminal()
    with connected(args) as client:
        stats = client.call("GET", CLIENTS)
    if args.json:
        print(json.dumps(stats))
        return 0
    began = datetime.fromtimestamp(stats["started_at"]).strftime("%Y-%m-%d %H:%M")
    console.print(f"spared since the start, {began}: {total_of(stats)}")
    if stats["clients"]:
        table = Table("client", "requests", "prompt tokens", "reused", "spared", box=None, padding=(0, 2, 0, 0))
        for each in stats["clients"]:
            table.add_row(*_row(each["client"], _sums(each)))
        console.print(table)
    return 0


def total_of(stats: Mapping[str, Any]) -> Sums:
    """The sums of all clients in an answer of the server."""
    return sum(map(_sums, stats["clients"]), Sums())


def _sums(told: Mapping[str, Any]) -> Sums:
    return Sums(**{each.name: told[each.name] for each in fields(Sums)})


def _row(client: str, sums: Sums) -> tuple[str, ...]:
    share = sums.reused / max(1, sums.prompt_tokens)
    numbers = f"{sums.requests:,}", f"{sums.prompt_tokens:,}", f"{share:.1%}", show_time(sums.saved_ms / 1000)
    return one_line(client), *numbers
