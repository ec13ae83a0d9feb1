"""`leftoff route` passes requests to the replica that answers them soonest."""

import argparse
from contextlib import closing

from leftoff.cli.extras import importing
from leftoff.cli.flags import CommandLine, add_settings, positive, settings_from
from leftoff.cli.loading import logging_to_stderr
from leftoff.cli.talk import server_url
from leftoff.cli.terminal import terminal
from leftoff.disk.secret import new_secret
from leftoff.errors import LeftoffError
from leftoff.server.app import guards
from leftoff.server.http.connection import raise_handle_limit
from leftoff.server.http.origins import KnownHosts
from leftoff.server.server import GuardedServer
from leftoff.store.fleet_key import read_fleet_key

_PORT, _QUEUE = 8090, 4096
_HANDLES_EACH = 2  # a client's connection, and one to a replica
_SETTINGS = ("index", "fleet_key", "host", "api_key", "cors", "allowed_host", "max_body", "log_level")


def add_parser(subparsers: "argparse._SubParsersAction[CommandLine]") -> None:
    """Adds the command `route`."""
    parser = subparsers.add_parser(
        "route",
        usage="leftoff route --index redis://HOST [options]",
        description="Passes requests to the replica with the least estimated time to the first token.",
        epilog="Replicas are `leftoff serve` processes. Those with the same --index are found by themselves.",
    )
    parser.add_argument(
        "--replica", metavar="URL", action="append", default=[], help="a replica that is not in the index; repeatable"
    )
    parser.add_argument("--port", type=int, default=_PORT, help="the port to listen on (default: %(default)s)")
    parser.add_argument(
        "--queue", type=positive, default=_QUEUE, help="requests that are passed on at one time (default: %(default)s)"
    )
    add_settings(parser, _SETTINGS, {"index": "the index that replicas share, such as redis://host:6379/0"})
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Routes until a signal ends it; returns the exit code."""
    settings = settings_from(args)
    if not settings.index and not args.replica:
        raise LeftoffError("leftoff route needs --index redis://HOST, or --replica URL for each replica")
    replicas = [server_url(text, "--replica") for text in args.replica]
    with importing("cluster", "leftoff route"):
        from leftoff.cluster.app import RouterApp  # noqa: PLC0415
        from leftoff.cluster.health import listed  # noqa: PLC0415
    console = terminal()
    key = read_fleet_key(settings.fleet_key)
    raise_handle_limit(settings, _HANDLES_EACH)

    def make_app(addresses: KnownHosts) -> RouterApp:
        find_urls = listed(replicas) if replicas else None
        return RouterApp(settings.index or None, find_urls, guards(settings, addresses, new_secret()), key)

    with (
        logging_to_stderr(settings.log_level, settings.log_format),
        closing(GuardedServer(make_app, settings, handles_each=_HANDLES_EACH, lifespan="on")) as server,
    ):
        console.print(f"leftoff route · {server.url}", style="bold")
        server.run()
    return 0
