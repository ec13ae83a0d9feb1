"""`leftoff prewarm` has a running server read headers, before a client has to wait for them."""

import argparse
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console

from leftoff.cli.flags import CommandLine, add_settings, settings_from
from leftoff.cli.signals import ended_by_signals
from leftoff.cli.talk import server_url
from leftoff.cli.terminal import terminal
from leftoff.client import ChatClient, connect
from leftoff.errors import LeftoffError
from leftoff.host.header_file import HeaderFile, read_header
from leftoff.setting import SettingError

_DEFAULT_URL = "http://127.0.0.1:8080"
_TIMEOUT = httpx.Timeout(None, connect=10.0)  # a slow machine reads a long header for many minutes


class PrewarmError(LeftoffError):
    """A header that was not prewarmed. The message says why and what to do."""


def add_parser(subparsers: "argparse._SubParsersAction[CommandLine]") -> None:
    """Adds the command `prewarm`."""
    parser = subparsers.add_parser(
        "prewarm",
        usage="leftoff prewarm [FILE ...] [--from-last] [options]",
        description="Has a running server read headers before a client asks, and never evict them. "
        "At the start of a server, `leftoff serve --prewarm` does the same.",
    )
    parser.add_argument("files", metavar="FILE", nargs="*", type=Path, help="a system prompt, or JSON with messages")
    parser.add_argument(
        "--from-last",
        action="store_true",
        help="read the headers that clients used last: after a change of the model, or when the cache was emptied",
    )
    add_server(parser)
    parser.set_defaults(run=run)


def add_server(parser: CommandLine, *, of_model: bool = True) -> None:
    """Adds the options that name a running server, and one of its models."""
    parser.add_argument("--url", default=_DEFAULT_URL, help=f"address of the server (default: {_DEFAULT_URL})")
    if of_model:
        parser.add_argument("--model", metavar="NAME", help="the model that is meant, where the server has several")
    add_settings(parser, ("api_key",), {"api_key": "key to send to the server"})


@contextmanager
def connected(args: argparse.Namespace) -> Iterator[ChatClient]:
    """A client of the server that these options name."""
    url = server_url(args.url)
    with ended_by_signals(), closing(connect(url, *settings_from(args).api_key[:1], timeout=_TIMEOUT)) as http:
        http.params = http.params.merge({"model": model} if (model := getattr(args, "model", None)) else {})
        yield ChatClient(http)


def run(args: argparse.Namespace) -> int:
    """Prints one line for each header; returns the exit code."""
    if not args.files and not args.from_last:
        raise SettingError("nothing to prewarm: give a FILE, or --from-last for the headers that clients used last")
    files = [(str(path), read_header(path, "")) for path in args.files]
    console = terminal()
    with connected(args) as client:
        for name, file in files:
            _show(console, name, client.call("POST", "/cache/prewarm", _body(file)))
        for header in _prewarmed_last(client) if args.from_last else ():
            _show(console, f"“{header['begins']}”", header)
    return 0


def _body(file: HeaderFile) -> dict[str, Any]:
    return {"messages": file.messages, "tools": file.tools, "chat_template_kwargs": file.options or None}


def _prewarmed_last(client: ChatClient) -> Iterator[Mapping[str, Any]]:
    done = client.call("POST", "/cache/prewarm/last")
    yield from done["headers"]
    if done["failed"]:
        raise PrewarmError(f"{len(done['failed'])} of the last headers: {done['failed'][0]}")
    if not done["headers"]:
        raise PrewarmError(
            f"{client.url} knows no header: use it with a client once, with a cache on disk, or give a FILE"
        )


def _show(console: Console, name: str, prewarmed: Mapping[str, Any]) -> None:
    console.print(f"prewarmed {name}: {prewarmed['tokens']:,} tokens, {prewarmed['computed']:,} computed")
