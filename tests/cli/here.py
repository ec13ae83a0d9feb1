"""`leftoff serve` in this process: the models, settings and screen of a command line, without signals and exit codes.

For tests of what a server does. Those of how it starts and ends run it as people do (`running.py`).
"""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path

from leftoff.cli import serve
from leftoff.cli.flags import CommandLine
from leftoff.cli.lineup import opened
from leftoff.cli.llama_flags import sampling_of
from leftoff.cli.terminal import terminal
from leftoff.server.server import serving
from tests.cli.running import SMALL
from tests.factory import model_path


@dataclass(frozen=True)
class Here:
    """A server that listens, and the lines of its screen."""

    url: str
    screen: list[str]


def served(*arguments: str, model: Path | str | None = None) -> AbstractContextManager[Here]:
    """A small server. `model` is another than the tests' own; an empty one leaves it to leftoff."""
    path = str(model_path("qwen35") if model is None else model)
    return served_as(*filter(None, [path]), *SMALL, *arguments)


@contextmanager
def served_as(*words: str) -> Iterator[Here]:
    """What `leftoff serve` with these words serves, and no others."""
    parser = CommandLine()
    serve.add_parser(parser.add_subparsers())
    args = parser.parse_args(["serve", *words])
    lineup, console, screen = serve.lineup_of(args), terminal(), StringIO()
    console.file = screen
    with opened(console, lineup, sys.exit, partial(sampling_of, args)) as hosts, serving(hosts) as url:
        serve.show_screen(console, hosts.first, url, lineup)
        yield Here(url, screen.getvalue().splitlines())
