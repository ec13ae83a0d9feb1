"""The `leftoff` command. Each subcommand is a file that has `add_parser` and `run`."""

import json
import sys
from collections.abc import Sequence

from leftoff import __version__
from leftoff.bench.errors import BenchError
from leftoff.cli import bench, cache, chat, demo, doctor, serve, simulate
from leftoff.cli.flags import CommandLine
from leftoff.cli.talk import TalkError
from leftoff.config import SettingError
from leftoff.engine.errors import EngineError
from leftoff.hub import HubError
from leftoff.simulate.trace import TraceError

_COMMANDS = (
    serve,
    chat,
    demo,
    bench,
    cache,
    doctor,
    simulate,
)
_ERRORS = (BenchError, EngineError, HubError, SettingError, TalkError, TraceError, OSError)
_FAILED, _INTERRUPTED = 1, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help()
        return 0
    try:
        return int(args.run(args))
    except _ERRORS as error:
        return _fail(error, as_json=getattr(args, "json", False))
    except KeyboardInterrupt:
        return _INTERRUPTED


def _parser() -> CommandLine:
    parser = CommandLine(prog="leftoff", description="An LLM server that picks up every prompt where it left off.")
    parser.add_argument("--version", action="version", version=f"leftoff {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for command in _COMMANDS:
        command.add_parser(subparsers)
    return parser


def _fail(error: Exception, *, as_json: bool) -> int:
    message = "; ".join(str(error).splitlines())
    if as_json:
        print(json.dumps({"error": message}))
    else:
        print(f"leftoff: {message}", file=sys.stderr)
    return _FAILED
