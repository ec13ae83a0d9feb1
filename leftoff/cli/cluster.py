"""`leftoff cluster up` starts replicas on Ray Serve: on this machine, or on the Ray cluster that it belongs to."""

import argparse
import os
import signal
import threading

from rich.console import Console

from leftoff.cli.flags import CommandLine
from leftoff.cli.route import MissingPackageError
from leftoff.setting import SettingError

_EXTRA = "pip install 'leftoff[ray]'"


def add_parser(subparsers: "argparse._SubParsersAction[CommandLine]") -> None:
    """Adds the command `cluster` with its one subcommand."""
    parser = subparsers.add_parser("cluster", description="Replicas on Ray Serve.")
    commands = parser.add_subparsers(dest="action", metavar="COMMAND", title="commands", required=True)
    up = commands.add_parser(
        "up",
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
    up.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: %(default)s)")
    up.add_argument("--port", type=int, default=8000, help="the port to listen on (default: %(default)s)")
    up.add_argument("flags", metavar="FLAG", nargs=argparse.REMAINDER, help="after --: flags for `leftoff serve`")
    up.set_defaults(run=run)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs until a signal ends it; returns the exit code."""
    least, most = _range(args.replicas)
    os.environ.setdefault("RAY_SERVE_LOG_TO_STDERR", "0")
    try:
        import ray  # noqa: PLC0415
        from ray import serve  # noqa: PLC0415

        from leftoff.cluster.ray_serve import app  # noqa: PLC0415
    except ImportError as error:
        raise MissingPackageError(f"leftoff cluster cannot import {error.name}: {_EXTRA}") from error
    console = Console(markup=False, highlight=False)
    ray.init(address=os.environ.get("RAY_ADDRESS"), log_to_driver=True, include_dashboard=False)
    try:
        serve.start(http_options={"host": args.host, "port": args.port})
        options = {
            "model": args.model,
            "index": args.index,
            "store": args.store,
            "flags": " ".join(flag for flag in args.flags if flag != "--"),
            "min_replicas": least,
            "max_replicas": most,
            "num_cpus": args.cpus,
            "num_gpus": args.gpus,
        }
        serve.run(app(options), name="leftoff", route_prefix="/")
        console.print(f"leftoff cluster · http://{args.host}:{args.port}", style="bold")
        _wait_for_signal()
    finally:
        serve.shutdown()
        ray.shutdown()
    return 0


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
