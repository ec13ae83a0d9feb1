"""`leftoff chat` is a chat in the terminal, with a model in this process or a server at a URL.

Under each reply it shows how many prompt tokens were reused and how many were computed.
"""

import argparse
import dataclasses
import re
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from rich.console import Console

from leftoff.cli.chat_history import ChatHistory, Question
from leftoff.cli.flags import DEVICE_SETTINGS, CommandLine, add_settings, config_of, given_values
from leftoff.cli.lineup import Lineup
from leftoff.cli.loading import hint_at_engine, load_host, quiet_logs
from leftoff.cli.signals import ended_by_signals
from leftoff.cli.talk import LocalModel, RemoteModel, ReplyOptions, Talker, TalkError, as_url
from leftoff.cli.terminal import terminal
from leftoff.errors import reason_of
from leftoff.host.host import ModelHost
from leftoff.sampling import Sampling
from leftoff.units import printable, show_bytes

_SETTINGS = (
    *("model", "api_key", "ctx", "ram", "disk", "cache_dir", "threads", "threads_batch", "batch", "ubatch"),
    *DEVICE_SETTINGS,
    *("max_tokens", "chat_template_file", "chat_template_kwargs"),
)
_MAX_FILE_BYTES = 1 << 20  # of a text that is given with a question: more than most contexts hold
_BLOCK = '"""'
_FENCES = re.compile("`+")
_HELP = """\
\\             at the end of a line: it goes on in the next
\"\"\"           begins and ends a question of many lines
/file FILE    give a text file with the next question
/image FILE   show a picture with the next question
/save FILE    write the conversation to a file, as JSON with messages
/load FILE    go on with a conversation that was saved
/undo         remove the last turn, to edit its question
/retry        ask the last question again
/reset        start a new conversation
/system TEXT  set the system prompt; without TEXT: remove it
/quit         leave (or Ctrl-D)"""

_DONE = {
    "/save": "saved",
    "/load": "loaded",
    "/file": "is given with the next question",
    "/image": "is shown with the next question",
}


def add_parser(subparsers: "argparse._SubParsersAction[CommandLine]") -> None:
    """Adds the command `chat`."""
    parser = subparsers.add_parser(
        "chat",
        usage="leftoff chat [MODEL | URL] [options]",
        description="Chats with a model in this process or with a server at a URL. While chatting:\n\n" + _HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "whom",
        metavar="MODEL | URL",
        nargs="?",
        help="GGUF file, org/repo[:quant] of the hub, a name of `leftoff models` or leftoff.toml, or http://host:port "
        "(default: the first of leftoff.toml, or the model that comes with leftoff)",
    )
    parser.add_argument("--system", metavar="TEXT", default="", help="system prompt")
    parser.add_argument(
        "--temperature",
        metavar="T",
        type=_temperature,
        help="sampling temperature; 0 takes the likeliest token (default: what the model recommends, or 0.8)",
    )
    add_settings(parser, _SETTINGS, {"api_key": "key to send to the server at the URL"})
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Chats until the user ends it; returns the exit code."""
    given = given_values(args) | ({"model": args.whom} if args.whom else {})
    lineup = Lineup(given, config_of(given))
    settings = lineup.first
    console = terminal()
    options = ReplyOptions(args.temperature, settings.max_tokens if settings.max_tokens >= 0 else None)
    with ended_by_signals(), closing(_talker(console, lineup, options)) as talker:
        return _Chat(console, talker, ChatHistory(args.system)).run()


def _talker(console: Console, lineup: Lineup, options: ReplyOptions) -> Talker:
    settings = lineup.first
    url = as_url(settings.model)
    if url is not None:
        return RemoteModel(url, options, *settings.api_key[:1])
    quiet_logs()
    host: ModelHost = load_host(console, dataclasses.replace(settings, slots=1), sampling=lineup.sampling_of(settings))
    hint_at_engine(console, host.model.library)
    return LocalModel(host, options)


def _temperature(text: str) -> float:
    try:
        return Sampling(temperature=float(text)).temperature
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number from 0 on, such as 0.8") from None


class _Chat:
    """Reads lines from a terminal or a pipe, and asks the model or runs a command for each."""

    def __init__(self, console: Console, talker: Talker, history: ChatHistory) -> None:
        self._console = console
        self._talker = talker
        self._history = history
        self._is_terminal = sys.stdin.isatty()
        self._draft = ""  # prefills the next line at a terminal
        self._images: tuple[str, ...] = ()  # for the next question
        self._files: tuple[str, ...] = ()  # likewise, as text
        self._exit_code = 0

    def run(self) -> int:
        """Returns the exit code: 1 if a question from a pipe failed."""
        self._note(f"{printable(self._talker.name)} · /help for what you can do")
        for line in self._lines():
            if line == "/quit":
                break
            if line.startswith("/"):
                self._command(*line.partition(" ")[::2])
            elif line:
                question = Question("\n\n".join([*self._files, line]), self._images)
                self._images, self._files = (), ()
                self._ask(question)
        return self._exit_code

    def _ask(self, question: Question) -> bool:
        """Whether there was a reply, which is added to the history."""
        try:
            turn = self._talker.ask(self._history.asking(question), self._show)
        except KeyboardInterrupt:
            self._note("\nstopped before the reply began: this turn is not kept")
        except TalkError as error:
            self._fail(printable(str(error)))
        else:
            self._history.add(question, turn.text)
            self._note(f"\n{turn.line()}")
            return True
        return False

    def _command(self, name: str, text: str) -> None:
        history = self._history
        if name == "/reset":
            history.reset()
            self._note("forgotten")
        elif name == "/system":
            history.system = text.strip()
            self._note("system prompt set" if history.system else "no system prompt")
        elif name in ("/file", "/image", "/save", "/load") and text.strip():
            self._use_file(name, Path(text.strip()).expanduser())
        elif name in ("/undo", "/retry"):
            self._take_back(again=name == "/retry")
        else:
            self._note(_HELP if name == "/help" else f"{name} is unknown:\n{_HELP}")

    def _use_file(self, name: str, path: Path) -> None:
        try:
            if name == "/save":
                self._history.save(path)
            elif name == "/load":
                self._history.load(path)
            elif name == "/image":
                self._add_image(path)
            else:
                self._files += (_text_of(path),)
        except (OSError, ValueError) as error:
            self._fail(printable(f"{name} {path}: {reason_of(error)}"))
            return
        self._note(printable(f"{path} {_DONE[name]}"))

    def _add_image(self, path: Path) -> None:
        if not self._talker.sees_pictures:
            raise ValueError(f"{self._talker.name} sees no pictures, since it has no projector")
        with path.open("rb"):  # it can be read, when it is sent
            self._images += (str(path),)

    def _take_back(self, *, again: bool) -> None:
        turn = self._history.undo()
        if turn is None:
            self._note("nothing was asked yet")
            return
        question, reply = turn
        if not again:
            self._draft, self._images = question.text, question.images
            self._note(f"taken back: {printable(question.text)}")
        elif not self._ask(question):
            self._history.add(question, reply)
            self._note("the reply that was there stays")

    def _lines(self) -> Iterator[str]:
        """At a terminal the first Ctrl-C only drops what is typed: it may be meant for a reply that has just ended."""
        was_interrupted = False
        while True:
            try:
                line = self._read_question().strip()
            except (EOFError, KeyboardInterrupt) as end:
                if self._is_terminal:
                    self._console.print()
                if not self._is_terminal or was_interrupted or isinstance(end, EOFError):
                    return
                was_interrupted = True
                self._note("Ctrl-C again, or Ctrl-D, leaves")
            else:
                was_interrupted = False
                yield line

    def _read_question(self) -> str:
        line = self._read("> ")
        if line.lstrip().startswith(_BLOCK):
            return self._read_block(line.strip().removeprefix(_BLOCK))
        while line.rstrip().endswith("\\"):
            line = f"{line.rstrip()[:-1]}\n{self._read_on('')}"
        return line

    def _read_block(self, first: str) -> str:
        lines = [first]
        while not lines[-1].endswith(_BLOCK):
            lines.append(self._read_on(_BLOCK).rstrip())
        return "\n".join(lines).removesuffix(_BLOCK)

    def _read_on(self, end: str) -> str:
        """The next line of a question; of a pipe that is at its end, what ends the question."""
        try:
            return self._read(". ")
        except EOFError:
            if self._is_terminal:
                raise
            return end

    def _read(self, prompt: str) -> str:
        if self._is_terminal:
            with _prefilled(self._draft):
                self._draft = ""
                return input(prompt)
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line

    def _show(self, text: str) -> None:
        if text:
            self._console.print(printable(text), end="")
            self._console.file.flush()

    def _fail(self, text: str) -> None:
        if self._is_terminal:
            self._note(f"\n{text}")
        else:
            print(f"leftoff: {text}", file=sys.stderr)
            self._exit_code = 1

    def _note(self, text: str) -> None:
        self._console.print(text, style="dim")


def _text_of(path: Path) -> str:
    """A text file as part of a question, under its name."""
    with path.open("rb") as file:
        content = file.read(_MAX_FILE_BYTES + 1)
    if len(content) > _MAX_FILE_BYTES:
        raise ValueError(f"it has more than {show_bytes(_MAX_FILE_BYTES)}: give a part of it")
    try:
        text = content.decode().rstrip()
    except UnicodeDecodeError:
        raise ValueError("it is no text in UTF-8") from None
    fence = "`" * (1 + max([2, *map(len, _FENCES.findall(text))]))  # longer than any in it, which would end the block
    return f"{path.name}:\n{fence}\n{text}\n{fence}"


@contextmanager
def _prefilled(text: str) -> Iterator[None]:
    """Puts a text on the next input line, to be edited, where the terminal supports it."""
    try:
        import readline  # noqa: PLC0415  # not on every system, and it changes how input() works
    except ImportError:
        yield
        return
    readline.set_startup_hook(lambda: readline.insert_text(text))
    try:
        yield
    finally:
        readline.set_startup_hook()
