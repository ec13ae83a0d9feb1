"""`leftoff launch` starts a coding agent on a server: one that runs, or one that it starts and stops with the agent.

The agent is told address, key, model and window (`leftoff/agents.py`) by its environment, arguments, and a file in a
temporary folder. Its output is its own: what this command says goes to stderr, and the server's log to a file there.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from rich.console import Console

from leftoff.agents import CODING_AGENTS, NO_KEY, Agent, Choice, Connection
from leftoff.cli.flags import CommandLine, add_settings, config_of, given_values, settings_from
from leftoff.cli.lineup import Lineup
from leftoff.cli.loading import with_files
from leftoff.cli.signals import ended_by_signals, handled_by
from leftoff.cli.stats import CLIENTS, total_of
from leftoff.cli.talk import server_url
from leftoff.cli.terminal import terminal
from leftoff.client import ChatClient, ClientError, UnreachableError, connect
from leftoff.config import definitions
from leftoff.errors import LeftoffError
from leftoff.hub.reference import shown_name
from leftoff.server.server import listen, url_of
from leftoff.units import one_line

_SETTINGS = ("model", "ctx", "host", "port", "api_key", "config")
_TIMEOUT = httpx.Timeout(None, connect=5.0)  # the model may have to be loaded first
_LOOK_S = 0.2
_STOP_S = 20.0  # for an agent or a server to end
_SHOWN_LINES = 5  # of the log of a server that failed
_DEMONSTRATION_TOKENS = 1 << 17  # more than it was trained for: enough for every agent
_DEMONSTRATION = "This is leftoff's demonstration model, too small to work with. To use your own: --model MODEL"


class LaunchError(LeftoffError):
    """An agent that was not started. The message says why and what to do."""


def add_parser(subparsers: "argparse._SubParsersAction[CommandLine]") -> None:
    """Adds the command `launch`."""
    parser = subparsers.add_parser(
        "launch",
        usage="leftoff launch AGENT [options] [-- arguments of the agent]",
        description="Starts a coding agent in this folder, on the server that runs at --host and --port; if none does, "
        "on one that is started for it, and stopped when it ends. The agent's own settings are not changed.",
    )
    parser.add_argument("agent", metavar="AGENT", choices=[*CODING_AGENTS], help=f"one of {', '.join(CODING_AGENTS)}")
    parser.behind = "arguments"
    parser.add_argument("--url", help="use the server at this address, and start none")
    parser.add_argument("--anyway", action="store_true", help="start it also if the window is too small for it")
    add_settings(
        parser,
        _SETTINGS,
        {
            "model": "model to serve, as for leftoff serve; of a server that runs, the name of one of its models",
            "api_key": "key of the server",
        },
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the agent; returns its exit code."""
    agent = CODING_AGENTS[args.agent]
    program = shutil.which(agent.name)
    if program is None:
        raise LaunchError(f"{agent.title} is not installed, there is no command {agent.name}: {agent.install}")
    console = terminal(stderr=True)
    with ended_by_signals(), ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="leftoff-launch-")))
        server = _Server(args, console)
        runs = server.is_there()
        to = server.connection() if runs else stack.enter_context(server.started(folder))
        if to.window < agent.least_window:
            told = _too_small(agent, to, runs)
            if not args.anyway:
                raise LaunchError(f"{told}. To start it all the same: --anyway")
            console.print(told, style="yellow")
        return _play(agent, to, [program], args.arguments, folder)


class _Server:
    """The server that the options mean, whether it runs already or not."""

    def __init__(self, args: argparse.Namespace, console: Console) -> None:
        self._console = console
        self._values = given_values(args)
        self._flags = {name: value for name, value in given_values(args, {}).items() if name in _SETTINGS}
        settings = settings_from(args)
        self._key = next(iter(settings.api_key), "")
        self._is_elsewhere = args.url is not None
        if self._is_elsewhere:
            self.url = server_url(args.url)
            return
        if settings.port == 0:
            self._flags["port"] = _free_port(settings.host)
        self.url = url_of(settings.host, self._flags.get("port", settings.port))

    def is_there(self) -> bool:
        """Whether a server answers. One that is elsewhere has to."""
        try:
            self._ask("/health")
        except UnreachableError:
            if self._is_elsewhere:
                raise
            return False
        return True

    def connection(self) -> Connection:
        """A connection to the model that is wanted, which is loaded for that if need be."""
        wanted = shown_name((), self._flags["model"]) if "model" in self._flags else ""
        to = self._connection({"model": wanted} if wanted else {})
        if wanted and to.model != wanted:  # one that is alone answers to any name
            raise LaunchError(
                f"the server at {self.url} has {to.model}, and not {wanted}: leave out --model, or give another --port"
            )
        return to

    def _connection(self, query: Mapping[str, str]) -> Connection:
        props = self._ask("/props", query)
        try:
            name, window = str(props["model_alias"]), int(props["default_generation_settings"]["n_ctx"])
            sees = bool(props["modalities"]["vision"])
            cards = {card["id"]: card for card in self._ask("/v1/models")["data"]}
            trained = int(cards.pop(name, {}).get("meta", {}).get("n_ctx_train", 0))
            others = tuple(_choices(cards.values()))
        except (LookupError, TypeError) as error:
            raise LaunchError(f"{self.url} is no server of leftoff's kind: choose another --port") from error
        return Connection(self.url, name, window, self._key or NO_KEY, sees, others, trained)

    @contextmanager
    def started(self, folder: Path) -> Iterator[Connection]:
        """One of our own, which ends at the end of the block, and also if this process is killed."""
        first = Lineup(self._values, config_of(self._values)).first
        with_files(first)  # downloads it where that is seen
        if not first.model and not first.ctx:
            self._flags["ctx"] = _DEMONSTRATION_TOKENS
            self._console.print(_DEMONSTRATION, style="dim")
        log = folder / "server.log"
        command = [sys.executable, "-m", "leftoff.cli.tethered", "serve"]
        variables = os.environ | _variables(self._flags)
        with (
            log.open("wb") as file,
            _ending(
                command,
                env=variables,
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                start_new_session=True,  # Ctrl-C in the terminal is for the agent
            ) as server,
        ):
            self._wait(server, log)
            yield self._connection({})
            if server.poll() is not None:
                raise LaunchError(f"the server has ended before the agent: {_end_of(log)}")
            self._tell_what_was_spared()

    def _wait(self, server: "subprocess.Popen[bytes]", log: Path) -> None:
        began = time.monotonic()
        title = f"starting a server at {self.url}"
        if not self._console.is_terminal:
            self._console.print(title)
        with self._console.status(title) as status:
            while server.poll() is None:
                if self.is_there():
                    return
                time.sleep(_LOOK_S)
                status.update(f"{title} · {time.monotonic() - began:.0f} s")
        raise LaunchError(f"the server did not start: {_end_of(log)}")

    def _tell_what_was_spared(self) -> None:
        """Says in a few words what the cache has spared, now that the agent's screen is gone."""
        with suppress(ClientError):
            spared = total_of(self._ask(CLIENTS))
            if spared.requests:
                self._console.print(f"spared: {spared}", style="dim")

    def _ask(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        with closing(connect(self.url, self._key, timeout=_TIMEOUT)) as http:
            http.params = httpx.QueryParams(query or {})
            return ChatClient(http).call("GET", path)


def _choices(cards: Iterable[Mapping[str, Any]]) -> Iterator[Choice]:
    """The models that write text. Of one that is not loaded, neither its window nor whether it sees is known."""
    for card in cards:
        meta = card.get("meta", {})
        if "n_embd" not in meta:
            yield Choice(card["id"], meta.get("n_ctx", 0), meta.get("vision", False))


def _too_small(agent: Agent, to: Connection, runs: bool) -> str:
    """The refusal of a window: the agent's need, the model's window, and the flag or the model that would do."""
    way_out = f"{'start the server with' if runs else 'give'} --ctx {agent.least_window}"
    if 0 < to.trained < agent.least_window:
        way_out += f", or take another model: this one was trained for {to.trained:,}"
    return (
        f"{agent.title} needs a window of {agent.least_window:,} tokens or more, {agent.instructions:,} of them for "
        f"its own instructions, and {to.model} has {to.window:,}: {way_out}"
    )


def _play(agent: Agent, to: Connection, program: Sequence[str], arguments: Sequence[str], folder: Path) -> int:
    """Runs the agent with what it is told; returns its exit code, as a shell would."""
    told = agent.tell(to, str(folder / agent.file))
    if agent.file:
        (folder / agent.file).write_text(told.file, encoding="utf-8")
    own = {name: value for name, value in os.environ.items() if name not in agent.without}
    command = [*program, *told.arguments, *arguments]
    with _ending(command, env=own | dict(told.environment)) as process:
        if not sys.stdin.isatty():
            return _code(process.wait())
        with handled_by(lambda _number, _frame: None, signal.SIGINT):  # the terminal sends it to the agent too
            return _code(process.wait())


@contextmanager
def _ending(command: Sequence[str], **options: Any) -> Iterator["subprocess.Popen[bytes]"]:  # noqa: ANN401
    """A process that is ended with the block, by force if it must be."""
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(_STOP_S)
                except subprocess.TimeoutExpired:
                    process.kill()


def _variables(given: Mapping[str, Any]) -> dict[str, str]:
    """The settings that were given here, for the server: not as arguments, which every user of the machine can read."""
    return {
        each.environment: each.separator.join(value if each.is_list else [str(value)])
        for each in definitions()
        if (value := given.get(each.name)) is not None
    }


def _free_port(host: str) -> int:
    with listen(host, 0) as listener:
        return int(listener.getsockname()[1])


def _end_of(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-_SHOWN_LINES:]
    return "; ".join(one_line(line) for line in lines if line.strip()) or "it has said nothing"


def _code(code: int) -> int:
    return 128 - code if code < 0 else code
