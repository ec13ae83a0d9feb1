"""`leftoff serve` runs the server. It takes its own flags and llama-server's.

Once the server listens, it prints the model, the cache and the address, and lines to paste for clients.
"""

import argparse
import os
import sys
import webbrowser
from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import partial
from urllib.parse import urlsplit

from rich.console import Console
from rich.text import Text

from leftoff import __version__
from leftoff.agents import CODING_AGENTS, agents_for, cramped_agents
from leftoff.cli.flags import CommandLine, add_settings, config_of, given_values
from leftoff.cli.lineup import Lineup, opened
from leftoff.cli.llama_flags import add_foreign, add_sampling, ignored_lines, sampling_of
from leftoff.cli.loading import hint_at_engine, logging_to_stderr, traced
from leftoff.cli.signals import TERMINATED, ended_by_signals
from leftoff.cli.supervisor import Supervisor, inherited_socket
from leftoff.cli.terminal import show_rows, terminal
from leftoff.config import AGENTS, BILLING_LINE, NO_LIMIT, Settings
from leftoff.disk.files import problem_of
from leftoff.disk.folder import model_folder
from leftoff.engine.memory.base import MEANINGS
from leftoff.host.budgets import conversation_bytes
from leftoff.host.host import ModelHost
from leftoff.host.kept import cache_root
from leftoff.hub.reference import default_model
from leftoff.machine import use_one_heap
from leftoff.server import server
from leftoff.server.admin.engine import client_lines, connection_to
from leftoff.server.admin.prewarm import LAST, prewarm_at_start
from leftoff.setting import SettingError, is_loopback
from leftoff.units import counted, printable, show_bytes, show_count

_DEMONSTRATION = "This small demonstration model comes with leftoff. To use your own: leftoff serve MODEL"
_USUAL_TOKENS = 20_000  # of a conversation, to say how many a budget holds
_MAX_SHOWN = 20  # names of models
_LAUNCHED = [agent.title for agent in CODING_AGENTS.values() if agent.name != "claude"]  # their lines are long
_LAST_LINE = "Ctrl-C stops the server. One line per request follows."


def add_parser(subparsers: "argparse._SubParsersAction[CommandLine]") -> None:
    """Adds the command `serve`."""
    parser = subparsers.add_parser(
        "serve",
        usage="leftoff serve [MODEL ...] [options]",
        description="Runs the server. Each option can also be set in the environment, --ram as LEFTOFF_RAM, and in "
        "leftoff.toml, as ram.",
        epilog="llama-server's flags work too: those that have no effect here are accepted, and listed at start.",
    )
    parser.add_argument(
        "positional",
        metavar="MODEL",
        nargs="*",
        help="GGUF file, org/repo[:quant] of the Hugging Face hub, or a name that `leftoff models` lists, such as "
        "qwen3.5-9b, which are downloaded once (default: the model that comes with leftoff); "
        "of several, as MODEL, NAME=MODEL or a name of leftoff.toml, those that a request names are loaded, as many as "
        "fit",
    )
    parser.add_argument("--open", action="store_true", help="open the page in the browser once the server listens")
    add_settings(parser)
    add_sampling(parser)
    add_foreign(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serves until a signal ends it; returns the exit code."""
    use_one_heap()
    lineup = lineup_of(args)
    with logging_to_stderr(lineup.first.log_level, lineup.first.log_format):
        return _run(args, lineup)


def _run(args: argparse.Namespace, lineup: Lineup) -> int:
    settings = lineup.first
    console = terminal()
    if settings.supervise:
        return _supervise(console, settings, opens=args.open)
    for line in ignored_lines(args.ignored):
        console.print(line, style="dim")
    listener = inherited_socket()
    if listener is None:
        server.listen(settings.host, settings.port).close()  # fails now rather than after minutes of loading
    # SIGTERM is the normal way to stop a server: exit code 0
    with (
        ended_by_signals(code=0),
        traced(settings.otel) as watchers,
        ExitStack() as at_the_end,
        opened(console, lineup, _leave, partial(sampling_of, args)) as hosts,
    ):
        hosts.log.watchers += watchers
        at_the_end.callback(hosts.log.log_spared)  # once the replies are counted that closing the hosts cuts off
        host = hosts.first
        hint_at_engine(console, host.model.library)
        for name, read in prewarm_at_start(host):
            shown = f"“{read.begins}”" if name == LAST else name
            console.print(f"prewarmed {shown}: {read.tokens:,} tokens, {read.computed:,} computed", style="dim")

        def on_ready(url: str) -> None:
            show_screen(console, host, url, lineup)
            if args.open and listener is None:  # else the supervisor has opened it
                webbrowser.open(url)

        server.run(hosts, host.settings, on_ready, listener)
    return 0


def _leave(code: int) -> None:
    os._exit(0 if code == TERMINATED else code)


def _supervise(console: Console, settings: Settings, *, opens: bool) -> int:
    with closing(server.listen(settings.host, settings.port)) as listener:
        if opens:  # the browser waits until the model is loaded
            webbrowser.open(server.url_of(settings.host, listener.getsockname()[1]))
        return Supervisor(console, listener, sys.argv[1:]).run()


def lineup_of(args: argparse.Namespace) -> Lineup:
    """The models of a command line with their settings, after flags that contradict each other were refused."""
    given = given_values(args)
    lineup = Lineup(given, config_of(given), args.positional)
    settings = lineup.first
    if settings.index and not settings.advertise and is_loopback(settings.host) and not is_loopback(settings.index):
        raise SettingError(
            f"--index on {urlsplit(settings.index).hostname}, and --host {settings.host}, which other machines cannot "
            "reach: give --host 0.0.0.0 (and --api-key KEY, since anybody can reach it then), or --advertise URL with "
            "the address by which routers do"
        )
    return lineup


def show_screen(console: Console, host: ModelHost, url: str, lineup: Lineup) -> None:
    """Prints the start screen: model, memory, cache, and lines to connect with."""
    page = " · open it in a browser to chat, and to see the cache" if host.settings.page else ""
    console.print(Text.assemble((f"\nleftoff {__version__} · {url}", "bold"), (page, "dim"), "\n"))
    show_rows(console, [*facts(host), *_origins(lineup)])
    console.print("\ntry it, or connect", style="bold")
    # not wrapped: a line that is broken to fit the window cannot be pasted
    lines = [(label, line) for label, line in client_lines(connection_to(host, url)) if label not in _LAUNCHED]
    if launched := agents_for(host.context_tokens):
        lines.append(("agents", f"leftoff launch AGENT --url {url}, of {', '.join(each.name for each in launched)}"))
    for label, line in lines:
        console.print(f"  {label:<12}", style="cyan", end="")
        console.print(printable(line))
    if cramped := cramped_agents(host.context_tokens):
        console.print(f"{'':14}{cramped}")
    console.print()
    if host.model.path == default_model():
        console.print(_DEMONSTRATION, style="dim")
    console.print(_LAST_LINE, style="dim")


def facts(host: ModelHost) -> list[tuple[str, str]]:
    """The rows of the start screen."""
    model, settings, kind = host.model, host.settings, host.engine.memory.kind
    return [
        (
            "model",
            f"{host.name}, {show_count(model.num_parameters)} parameters, {show_bytes(model.size_bytes)}",
        ),
        ("architecture", model.architecture),
        ("memory", f"{kind.value}. {MEANINGS[kind]}{_cost_of_no_flash(host)}"),
        ("context", f"{host.context_tokens:,} tokens, shared by {settings.slots} slots"),
        *([("fit", host.fit_line)] if host.fit_line else []),
        ("cache", _budgets(host)),
        ("drop-header", _rules(settings.drop_header, BILLING_LINE, "Claude Code's billing line")),
        ("move", _rules(settings.move, AGENTS, "the date, git status and file list of coding agents")),
        ("API key", _access(settings)),
    ]


def _origins(lineup: Lineup) -> list[tuple[str, str]]:
    """Which models there are, if there are several, and the file that says so."""
    given = (*lineup.named, *lineup.encoders)
    names = [*(" ".join(settings.alias) for settings in given), *lineup.files()]
    rows = []
    if not lineup.has_one:
        more = ", …" if len(names) > _MAX_SHOWN else ""
        rows.append(("models", f"{', '.join(names[:_MAX_SHOWN])}{more}"))
    if lineup.config.path is not None:
        rows.append(("settings", str(lineup.config.path)))
    return rows


def _cost_of_no_flash(host: ModelHost) -> str:
    is_its_cause = host.settings.flash_attn == "off" and not host.model.is_recurrent
    return " That is the price of --flash-attn off, as is one request at a time." if is_its_cause else ""


def _budgets(host: ModelHost) -> str:
    shared = f"; shared with other servers in {host.settings.store}" if host.settings.store else ""
    return f"{_own_budgets(host)}{shared}"


def _own_budgets(host: ModelHost) -> str:
    settings, ram_bytes = host.settings, host.cache.ram.budget.budget_bytes
    ram = "RAM without a limit" if settings.ram == NO_LIMIT else f"up to {show_bytes(ram_bytes)} of RAM"
    ram += f" for {_conversations(host, ram_bytes)}" if settings.ram != NO_LIMIT else ""
    if not settings.disk:
        return f"{ram}, nothing on disk: a restart forgets"
    if host.cache.disk is None:
        return f"{ram}, nothing on disk, for the reason above: a restart forgets"
    root = cache_root(settings)
    problem = problem_of(model_folder(root, host.engine.memory.fingerprint))
    if problem:
        return f"{ram}, nothing on disk ({problem})"
    disk_bytes = host.cache.disk.budget.budget_bytes
    return f"{ram}; {show_bytes(disk_bytes)} on disk for {_conversations(host, disk_bytes)}, in {root}"


def _conversations(host: ModelHost, budget_bytes: int) -> str:
    """How many conversations fit a budget, about: one has 20,000 tokens, or as many as the context."""
    memory = host.engine.memory
    num_tokens = min(_USUAL_TOKENS, memory.num_cells)
    count = budget_bytes // max(1, conversation_bytes(memory, num_tokens))
    return f"about {counted(count, 'conversation')} of {num_tokens:,} tokens"


def _rules(rules: Sequence[str], default: str, in_words: str) -> str:
    return ", ".join(in_words if rule == default else rule for rule in rules) or "nothing"


def _access(settings: Settings) -> str:
    if settings.api_key:
        return f"on, {len(settings.api_key)} accepted" if len(settings.api_key) > 1 else "on"
    if is_loopback(settings.host):
        return "off: whoever is on this machine may use it"
    return f"off, and it listens on {settings.host}: whoever reaches that may use it. --api-key KEY closes it"
