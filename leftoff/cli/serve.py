"""`leftoff serve` runs the server, with its own flags and with those of llama-server."""

import argparse
import dataclasses
import os
import socket
import sys
from contextlib import closing

from rich.console import Console

from leftoff.cli.flags import CommandLine, add_settings, settings_from
from leftoff.cli.llama_flags import add_foreign, add_sampling, ignored_lines, sampling_of
from leftoff.cli.loading import load_service, logging_to_stderr
from leftoff.cli.screen import show_screen
from leftoff.cli.signals import TERMINATED, ended_by_signals
from leftoff.cli.supervisor import Supervisor, inherited_socket
from leftoff.config import SettingError, Settings
from leftoff.server import server
from leftoff.server.admin.prewarm import prewarm_files


def add_parser(subparsers: "argparse._SubParsersAction[CommandLine]") -> None:
    parser = subparsers.add_parser(
        "serve",
        usage="leftoff serve [MODEL] [options]",
        description="Runs the server. Each option can also be set in the environment: --ram as LEFTOFF_RAM.",
        epilog="A command line of llama-server works too: flags without a meaning here are accepted and named.",
    )
    parser.add_argument(
        "positional",
        metavar="MODEL",
        nargs="?",
        help="GGUF file, or org/repo[:quant] of the hub (default: the one that comes with leftoff)",
    )
    add_settings(parser)
    add_sampling(parser)
    add_foreign(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    settings = settings_of(args)
    with logging_to_stderr(settings.log_level):
        return _run(args, settings)


def _run(args: argparse.Namespace, settings: Settings) -> int:
    console = Console(markup=False, highlight=False, emoji=False)
    if settings.supervise:
        return _supervise(console, settings)
    for line in ignored_lines(args.ignored):
        console.print(line, style="dim", soft_wrap=True)
    listener = inherited_socket()
    if listener is None:
        _refuse_a_taken_port(settings.host, settings.port)
    # To be asked to stop is how a server ends, and no failure.
    with ended_by_signals(code=0), load_service(console, settings, _leave) as service:
        service.default_sampling = dataclasses.replace(service.default_sampling, **sampling_of(args))
        for file, read in zip(settings.prewarm, prewarm_files(service), strict=True):
            console.print(f"prewarmed {file}: {read.tokens:,} tokens, {read.computed:,} computed", style="dim")
        server.run(service, service.settings, lambda url: show_screen(console, service, url), listener)
    return 0


def _leave(code: int) -> None:
    os._exit(0 if code == TERMINATED else code)


def _supervise(console: Console, settings: Settings) -> int:
    with closing(server.listen(settings.host, settings.port)) as listener:
        return Supervisor(console, listener, sys.argv[1:]).run()


def settings_of(args: argparse.Namespace) -> Settings:
    settings = settings_from(args)
    if args.positional and args.model not in (None, args.positional):
        raise SettingError(f"two models, {args.positional} and --model {args.model}: give one")
    if args.values_type not in (None, settings.kv_type):
        raise SettingError(
            f"--cache-type-v {args.values_type}: keys are {settings.kv_type}, and values have the same type here: "
            f"give --kv-type {args.values_type} for both, or leave it out"
        )
    return dataclasses.replace(settings, model=args.positional or settings.model)


def _refuse_a_taken_port(host: str, port: int) -> None:
    """Loading may take minutes: what would fail after it should fail before."""
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (")[0]
        raise OSError(
            f"cannot listen on {host}, port {port} ({reason}): choose another --host or --port; 0 takes a free one"
        ) from error
