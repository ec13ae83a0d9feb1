"""`python -m lab.clients` installs clients, plays them against a server, and writes what was reused into a page.

It needs npm, the network and 8 GiB of disk, more where torch comes with CUDA. Claude Code, Codex and OpenCode have long
first prompts; on two cores, the others take a quarter of an hour (`--without claude-code codex opencode`).
A client that cannot be installed has failed, and the others are played.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from lab.bench.process import Process
from lab.clients import install, report
from lab.clients.catalog import CATALOG
from lab.clients.client import Client, Place
from lab.clients.play import Done, Player
from lab.clients.tap import tapping
from leftoff.cli.flags import CommandLine
from leftoff.cli.main import run_command

_FOLDER = Path("build/clients")
_SERVE = (sys.executable, "-m", "leftoff", "serve", "--port", "0", "--ctx", "131072")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code: 1 if a client failed, or read again what it need not."""
    return run_command(_parser, sys.argv[1:] if argv is None else argv)


def _parser() -> CommandLine:
    names = [client.name for client in CATALOG]
    parser = CommandLine(
        prog="python -m lab.clients",
        usage="python -m lab.clients [NAME ...] [options]",
        description="Plays clients from npm and PyPI against a server with the model that comes with leftoff.",
    )
    parser.add_argument("names", metavar="NAME", nargs="*", type=_known, help=f"only these of {', '.join(names)}")
    parser.add_argument("--without", metavar="NAME", nargs="+", type=_known, default=[], help="all but these")
    parser.add_argument("--folder", type=Path, default=_FOLDER, help=f"where to install and run (default: {_FOLDER})")
    parser.add_argument("--model", help="another one with the same template: one of few layers takes less time")
    parser.add_argument("--threads", type=int, metavar="N", help="of the server (default: one per physical core)")
    parser.add_argument("--keep-cache", action="store_true", help="the server's cache of the last run stays")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the page there, from all that were played")
    parser.set_defaults(run=_play)
    return parser


def _known(name: str) -> str:
    if name not in (client.name for client in CATALOG):
        raise argparse.ArgumentTypeError(f"there is no client {name!r}: --help names all")
    return name


def _play(args: argparse.Namespace) -> int:
    folder = args.folder.absolute()
    (folder / "played").mkdir(parents=True, exist_ok=True)
    wanted = args.names or [client.name for client in CATALOG]
    chosen = [client for client in CATALOG if client.name in wanted and client.name not in args.without]
    failed = [client.name for client in chosen if not _is_well(client, folder, args)]
    if args.markdown:
        args.markdown.write_text(report.page(CATALOG, folder / "played"))
    print(f"{len(chosen)} clients, failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


def _is_well(client: Client, folder: Path, args: argparse.Namespace) -> bool:
    """Plays one client and keeps what came out for the page; returns whether all came out as it should."""
    print(client.title, client.version, flush=True)
    try:
        played = [*_played(client, folder, args)]
    except install.InstallError as error:
        print(f"    FAILED: {error}", flush=True)
        return False
    (folder / "played" / f"{client.name}.json").write_text(json.dumps([asdict(done) for done in played], indent=1))
    return not any(done.problems for done in played)


def _played(client: Client, folder: Path, args: argparse.Namespace) -> Iterator[Done]:
    """Plays one client, prints each step, and leaves what was said in a folder for `lab.clients.record`."""
    bin_folder = install.installed(client, folder)
    home, cache = folder / "home" / client.name, folder / "cache" / client.name
    for old in (home,) if args.keep_cache else (home, cache):
        shutil.rmtree(old, ignore_errors=True)
    home.mkdir(parents=True)
    threads = ("--threads", str(args.threads)) if args.threads else ()
    model = ("--model", args.model) if args.model else ()
    with closing(Process([*_SERVE, *threads, *model, "--cache-dir", str(cache)])) as server, tapping(server.url) as tap:
        python = bin_folder / "python" if client.registry == "pypi" else Path(sys.executable)
        place = Place(tap.url, home, bin_folder, install.node(folder), python)
        for done in Player(client, place, server, tap).play():
            print(report.line(done), flush=True)
            tap.save(folder / "captures" / client.name)
            yield done


if __name__ == "__main__":
    sys.exit(main())
