"""The `leftoff` command. Each subcommand is a module here with `add_parser` and `run`."""

import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module

from leftoff import __version__
from leftoff.cli.flags import CommandLine
from leftoff.cli.signals import INTERRUPTED
from leftoff.errors import LeftoffError, reason_of
from leftoff.units import printable

_COMMANDS = {
    "serve": "run the server",
    "launch": "start a coding agent on a server, here and now",
    "models": "list models by name, and what fits this machine",
    "chat": "talk to a model in the terminal",
    "demo": "compare replies with the cache off and on",
    "stats": "show what a running server has spared its clients",
    "prewarm": "have a running server read a header before a client asks",
    "headers": "list and forget what a running server has learned to move out of headers",
    "route": "pass requests to the replica that answers soonest",
    "cluster": "start replicas on Ray Serve",
    "cache": "list, check and prune the disk cache",
    "engine": "show and install the llama.cpp library, for a GPU or the CPU",
    "doctor": "describe the library, this machine and a model, and measure its speed",
}
# The folder of the cache is locked by the first, and memory and open files are limited by the second.
_UNIX_MODULES = ("fcntl", "resource")
_FIRST_STEPS = "First steps: leftoff serve --open has a page to chat in; leftoff COMMAND --help describes a command."
_NO_WINDOWS = "leftoff runs on Linux and macOS; on Windows, WSL2 is a Linux to run it in, which we have not tried"
_FAILED = 1
_UNREAD = 128 + 13  # SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    words = sys.argv[1:] if argv is None else argv
    return run_command(lambda: _parser(words[0] if words else ""), words)


def run_command(make_parser: Callable[[], CommandLine], words: Sequence[str]) -> int:
    """Parses the words and calls the parser's `run`. Expected errors become one line on stderr and an exit code."""
    try:
        _forgive_characters()
        try:
            return _run(make_parser(), words)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except ModuleNotFoundError as error:
        if error.name not in _UNIX_MODULES:
            raise
        return _fail(LeftoffError(f"this takes {error.name}, which this system lacks. {_NO_WINDOWS}"), as_json=False)
    except BrokenPipeError:
        _write_nowhere()
        return _UNREAD
    except OSError as error:
        _write_nowhere()
        return _fail(OSError(f"the output cannot be written ({reason_of(error)})"), as_json=False)


def _run(parser: CommandLine, words: Sequence[str]) -> int:
    args = parser.parse_args(words)
    if not hasattr(args, "run"):
        parser.print_help()
        return 0
    try:
        return int(args.run(args))
    except BrokenPipeError:
        raise
    except (LeftoffError, OSError) as error:
        return _fail(error, as_json=getattr(args, "json", False))
    except SystemExit as exit_:
        # rich turns a broken pipe into SystemExit
        if isinstance(exit_.__context__, BrokenPipeError):
            return _UNREAD
        raise


def _forgive_characters() -> None:
    """Replaces characters that a terminal or a pipe cannot encode or decode, instead of failing."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _write_nowhere() -> None:
    """Redirects stdout to /dev/null: Python flushes it at exit, which would fail again."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser(asked: str) -> CommandLine:
    """A parser that lists all commands, but imports only the one that is asked for: imports are slow."""
    parser = CommandLine(
        prog="leftoff",
        description="An LLM server that picks up every prompt where it left off.",
        epilog=_NO_WINDOWS if sys.platform == "win32" else _FIRST_STEPS,
    )
    parser.add_argument("--version", action="version", version=f"leftoff {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, summary in _COMMANDS.items():
        if name == asked:
            import_module(f"leftoff.cli.{name}").add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=summary)
    return parser


def _fail(error: Exception, *, as_json: bool) -> int:
    message = "; ".join(str(error).splitlines()) or type(error).__name__
    if as_json:
        print(json.dumps({"error": message}))
    else:
        print(f"leftoff: {printable(message)}", file=sys.stderr)
    return _FAILED
