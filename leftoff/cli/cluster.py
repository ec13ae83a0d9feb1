"""`leftoff cluster up` starts replicas on Ray Serve, `leftoff cluster key` makes the key of a fleet."""

import argparse
import os
import shlex
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leftoff.cli.extras import importing
from leftoff.cli.flags import CommandLine
from leftoff.cli.terminal import terminal
from leftoff.errors import reason_of
from leftoff.server.server import url_of
from leftoff.setting import SettingError, is_loopback
from leftoff.store.fleet_key import FleetKey

_NAME = "leftoff"  # of the application
_HOST, _PORT = "127.0.0.1", 8000
_OWN = "local"  # Ray's word for a cluster of its own
_OPEN = (
    "The replicas listen on the addresses of their nodes without an API key: whoever reaches these may use them. "
    "--api-key KEY closes them"
)


def add_parser(subparsers: "argparse._SubParsersAction[CommandLine]") -> None:
    """Adds the command `cluster` with its subcommands."""
    parser = subparsers.add_parser("cluster", description="Replicas on Ray Serve, and the key of a fleet.")
    commands = parser.add_subparsers(dest="action", metavar="COMMAND", title="commands", required=True)
    up = commands.add_parser(
        "up",
        help="start replicas of `leftoff serve` with a router over them",
        usage="leftoff cluster up [MODEL] [options] [-- flags for leftoff serve]",
        description="Starts replicas of `leftoff serve` with a router over them, and scales them by their work.",
        epilog="The same application as `serve run leftoff.cluster:app`; docs/cluster.md has a serve.yaml.",
    )
    up.add_argument("model", metavar="MODEL", nargs="?", default="", help="for `leftoff serve`")
    up.add_argument("--index", metavar="URL", default="", help="redis://HOST: what replicas share, and tell the router")
    up.add_argument("--store", metavar="URL", default="", help="s3://…, gs://…, az://… or file:///…")
    up.add_argument("--replicas", metavar="N[:MAX]", default="1", help="how many, or from how many to how many")
    up.add_argument("--cpus", metavar="N", type=float, default=1.0, help="CPUs of each replica (default: %(default)s)")
    up.add_argument("--gpus", metavar="N", type=float, default=0.0, help="GPUs of each replica (default: %(default)s)")
    up.add_argument("--api-key", metavar="KEY", default="", help="that replicas ask clients for; several with commas")
    up.add_argument("--host", help=f"the address to listen on (default: {_HOST})")
    up.add_argument("--port", type=int, help=f"the port to listen on (default: {_PORT})")
    up.add_argument("flags", metavar="FLAG", nargs=argparse.REMAINDER, help="after --: flags for `leftoff serve`")
    up.add_argument("--fleet-key", metavar="FILE", default="", help="the key of the fleet, on every node at this path")
    up.set_defaults(run=run)
    making = commands.add_parser(
        "key",
        help="make the key of a fleet",
        description="Makes the key of a fleet: a file to copy to all its servers and routers, for --fleet-key.",
    )
    making.add_argument("file", metavar="FILE", type=Path, help="file to write; it must not be there yet")
    making.set_defaults(run=make_key)


def make_key(args: argparse.Namespace) -> int:
    """Writes a new key, for the user alone."""
    try:
        FleetKey.create(args.file)
    except OSError as error:
        raise SettingError(f"FILE {args.file}: {reason_of(error)}: name another") from error
    print(f"{args.file}: copy it to every server and router of the fleet, and start them with --fleet-key {args.file}")
    return 0


def run(args: argparse.Namespace) -> int:
    """Runs until a signal ends it; returns the exit code."""
    least, most = _range(args.replicas)
    os.environ.setdefault("RAY_SERVE_LOG_TO_STDERR", "0")
    with importing("ray", "leftoff cluster"):
        import ray  # noqa: PLC0415
        from ray import serve  # noqa: PLC0415

        from leftoff.cluster.ray_serve import app  # noqa: PLC0415
    console = terminal()
    is_own = _start_or_join(ray)
    try:
        url = _listening(serve, args.host, args.port)
        is_local = is_own and (not args.index or is_loopback(args.index))
        if not is_local and not args.api_key:
            console.print(_OPEN, style="yellow")
        options = {
            "model": args.model,
            "index": args.index,
            "store": args.store,
            "fleet_key": args.fleet_key,
            "flags": shlex.join(flag for flag in args.flags if flag != "--"),
            "api_key": args.api_key,
            "host": _HOST if is_local else "",
            "min_replicas": least,
            "max_replicas": most,
            "num_cpus": args.cpus,
            "num_gpus": args.gpus,
        }
        with _application(serve):
            serve.run(app(options), name=_NAME, route_prefix="/")
            console.print(f"leftoff cluster · {url}", style="bold")
            _wait_for_signal()
    finally:
        ray.shutdown()
    return 0


def _start_or_join(ray: Any) -> bool:  # noqa: ANN401
    """Joins the Ray cluster that there is; True if one was started that ends with this process.

    That is so if there was none, or if RAY_ADDRESS is `local`.
    """
    address = os.environ.get("RAY_ADDRESS")
    if address != _OWN:
        try:
            ray.init(address=address or "auto", log_to_driver=True)
        except ConnectionError:
            if address:
                raise
        else:
            return False
    ray.init(address=_OWN, log_to_driver=True, include_dashboard=False)
    return True


def _listening(serve: Any, host: str | None, port: int | None) -> str:  # noqa: ANN401
    """The URL of Ray Serve, which is started unless it runs: then it listens where it does already."""
    from ray.serve.context import _get_global_client  # noqa: PLC0415

    running = _get_global_client(raise_if_no_controller_running=False)
    if running is None:
        serve.start(http_options={"host": host or _HOST, "port": port or _PORT})
        return url_of(host or _HOST, port or _PORT)
    there = running.http_config
    for flag, wanted, is_ in (("--host", host, there.host), ("--port", port, there.port)):
        if wanted not in (None, is_):
            raise SettingError(
                f"{flag} {wanted}: Ray Serve runs on this cluster already, and listens on {there.host}:{there.port}: "
                f"leave {flag} out"
            )
    return url_of(there.host, there.port)


@contextmanager
def _application(serve: Any) -> Iterator[None]:  # noqa: ANN401
    """Removes the own application at the end, and no other: the cluster may be shared."""
    try:
        yield
    finally:
        serve.delete(_NAME)


def _range(text: str) -> tuple[int, int]:
    least, _, most = text.partition(":")
    if not least.isdecimal() or not (most or least).isdecimal() or not 1 <= int(least) <= int(most or least):
        raise SettingError(f"--replicas {text}: give a number, or two as in 2:8, the smaller first")
    return int(least), int(most or least)


def _wait_for_signal() -> None:
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    ended.wait()
