"""`leftoff headers` lists the lines that a running server has learned to move out of headers, and has it forget."""

import argparse

from leftoff.cli.flags import CommandLine
from leftoff.cli.prewarm import add_server, connected
from leftoff.cli.terminal import terminal
from leftoff.units import one_line


def add_parser(subparsers: "argparse._SubParsersAction[CommandLine]") -> None:
    """Adds the command `headers`."""
    about = "Lists the lines that a server with `--move learn` has learned to move out of headers."
    parser = subparsers.add_parser("headers", description=about)
    parser.add_argument(
        "--forget", metavar="NAME", help="leave these lines where they are, and do not learn them again"
    )
    add_server(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints one line for each move; returns the exit code."""
    console = terminal()
    with connected(args) as client:
        if args.forget:
            console.print(f"forgotten: {client.call('DELETE', f'/cache/learned/{args.forget}')['forgotten']}")
            return 0
        learned = client.call("GET", "/cache/learned")["learned"]
        for move in learned:
            of_model = f"{move['model']}: " if "model" in move else ""
            console.print(one_line(f"{of_model}{move['lines']}"))
        if not learned:
            console.print(f"{client.url} has learned nothing to move so far: it learns if started with --move learn")
    return 0
