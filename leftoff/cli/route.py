"""`leftoff route` passes requests to the replica that answers them soonest."""

import argparse

from rich.console import Console

from leftoff.cli.flags import CommandLine
from leftoff.cli.loading import logging_to_stderr
from leftoff.errors import LeftoffError
from leftoff.server.server import listen, url_of

_EXTRA = "it takes the optional packages of a cluster: pip install 'leftoff[cluster]'"


class MissingPackageError(LeftoffError):
    """An optional package is not installed."""


def add_parser(subparsers: "argparse._SubParsersAction[CommandLine]") -> None:
    """Adds the command `route`."""
    parser = subparsers.add_parser(
        "route",
        usage="leftoff route --index redis://HOST [options]",
        description="Passes requests to the replica with the least estimated time to the first token.",
        epilog="Replicas are `leftoff serve` processes. Those with the same --index are found by themselves.",
    )
    parser.add_argument("--index", metavar="URL", help="the index that replicas share, such as redis://host:6379/0")
    parser.add_argument(
        "--replica", metavar="URL", action="append", default=[], help="a replica that is not in the index; repeatable"
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8090, help="the port to listen on (default: %(default)s)")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Routes until a signal ends it; returns the exit code."""
    if not args.index and not args.replica:
        raise LeftoffError("leftoff route needs --index redis://HOST, or --replica URL for each replica")
    try:
        from leftoff.cluster.app import RouterApp, listed  # noqa: PLC0415
    except ImportError as error:
        raise MissingPackageError(f"leftoff route cannot import {error.name}: {_EXTRA}") from error
    import uvicorn  # noqa: PLC0415

    console = Console(markup=False, highlight=False)
    with logging_to_stderr(args.log_level):
        listener = listen(args.host, args.port)
        config = uvicorn.Config(
            RouterApp(args.index, listed(args.replica) if args.replica else None),
            log_config=None,
            access_log=False,
            ws="none",
            lifespan="on",
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=3,
        )
        console.print(f"leftoff route · {url_of(args.host, listener.getsockname()[1])}", style="bold")
        uvicorn.Server(config).run(sockets=[listener])
    return 0
