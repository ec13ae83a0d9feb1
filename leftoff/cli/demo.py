"""`leftoff demo` plays scripted conversations with the cache off and on, and fails if the cache did not help.

For each step it draws two bars: the time to the first token with the cache off and on. The server's page plays the
same script, `scenes.py`.
"""

import argparse
import dataclasses
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import dataclass
from functools import partial
from statistics import median
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table
from rich.text import Text

from leftoff.cli.chat_history import ChatHistory, Question
from leftoff.cli.flags import DEVICE_SETTINGS, CommandLine, add_settings, settings_from
from leftoff.cli.loading import ends_at_once, load_host, quiet_logs
from leftoff.cli.signals import ended_by_signals
from leftoff.cli.talk import LocalModel, ReplyOptions, TimedReply
from leftoff.cli.terminal import terminal
from leftoff.config import Settings
from leftoff.host.host import ModelHost
from leftoff.host.late_host import LateHost
from leftoff.host.seats import Seats
from leftoff.scenes import SCENES, Scene, Step
from leftoff.scheduler.gate import Gate
from leftoff.units import printable, show_ms

Start = Callable[[Gate], ModelHost]
Loading = Callable[[], AbstractContextManager[None]]

_WIDTH = 32  # characters of the first bar
_MAX_WIDTH = 40
_EIGHTHS = " ▏▎▍▌▋▊▉"
_SETTINGS = ("ctx", "ram", "disk", "threads", "threads_batch", "batch", "ubatch", *DEVICE_SETTINGS)
_INTRO = """\
Two servers with one difference: "off" clears its cache before each request.
A bar is the time to the first token of a reply, measured now on this machine."""
_OPTIONS = ReplyOptions(temperature=0, max_tokens=32)
_WARM_UP = [{"role": "user", "content": "Hello!"}]
_SAME_FILE = "(here both are the same file, under two names, and there is room for one)"
_NEAR_TIE = "where two words are almost as likely, it matters in which batches the prompt was read"


@dataclass(frozen=True)
class Measured:
    """One step, with the cache off and on."""

    step: Step
    off: TimedReply
    on: TimedReply

    @property
    def is_reused(self) -> bool:
        """Whether most of the prompt came from the cache."""
        return 2 * (self.on.reused or 0) > (self.on.prompt_tokens or 0)

    @property
    def is_same_reply(self) -> bool:
        return self.off.text == self.on.text


@dataclass(frozen=True)
class Outcome:
    """A scene and the times of its steps."""

    scene: Scene
    measured: Sequence[Measured]

    @property
    def off_ms(self) -> float:
        return sum(one.off.first_token_ms for one in self.measured)

    @property
    def on_ms(self) -> float:
        return sum(one.on.first_token_ms for one in self.measured)

    @property
    def seen_before(self) -> list[Measured]:
        """The steps whose prompt was mostly read before: here the cache has to help."""
        return [one for one in self.measured if not one.step.is_first_sight]

    @property
    def failure(self) -> str:
        """Why the cache did not help; empty if it did."""
        for one in self.seen_before:
            if not one.is_reused:
                return f"{one.step.label}: it reused {one.on.reused or 0:,} of {one.on.prompt_tokens or 0:,} tokens"
        off, on = _medians(self.seen_before)
        if on >= off:
            return f"the first token came after {show_ms(on)} with the cache, after {show_ms(off)} without"
        return ""


class Side:
    """One of the two servers and its conversations. With `forgets`, its cache is cleared before each request."""

    def __init__(self, starts: Sequence[Start], loading: Loading = nullcontext, *, forgets: bool) -> None:
        """There is room for one of the models: others are opened when they are first asked, each within `loading`."""
        self._starts = starts
        self._loading = loading
        self._forgets = forgets
        self._threads: dict[str, ChatHistory] = {}
        self._open()

    @property
    def model_name(self) -> str:
        return self._model(0).name

    def close(self) -> None:
        self._running.close()

    def restart(self) -> None:
        self.close()
        self._open()

    def play(self, scene: Scene, step: Step) -> TimedReply:
        conversation, model = self._thread(scene, step), self._model(step.model)
        if self._forgets:
            host = self._late[step.model].open()
            host.call(host.cache.clear).result()
        turn = model.ask(conversation.asking(Question(step.question)), _ignore)
        conversation.add(Question(step.question), turn.text)
        return turn

    def _open(self) -> None:
        seats = Seats(most=1)
        self._running = ExitStack()
        self._models: dict[int, LocalModel] = {}
        self._late = [LateHost(f"model {number}", seats.add(), start) for number, start in enumerate(self._starts, 1)]
        self._model(0)

    def _model(self, number: int) -> LocalModel:
        if number not in self._models:
            with ExitStack() as opened:  # Python crashes at exit if the engine's thread still runs
                with self._loading():
                    host = self._late[number].open()
                model = opened.enter_context(closing(LocalModel(host, _OPTIONS)))
                model.ask(_WARM_UP, _ignore)  # the first request of a process is slower than all others
                self._running.push(opened.pop_all())
            self._models[number] = model
        return self._models[number]

    def _thread(self, scene: Scene, step: Step) -> ChatHistory:
        if step.thread not in self._threads:
            self._threads[step.thread] = self._forked(step) or ChatHistory(scene.system)
        return self._threads[step.thread]

    def _forked(self, step: Step) -> ChatHistory | None:
        if step.fork is None:
            return None
        origin = self._threads[step.fork.thread]
        return ChatHistory(origin.system, origin.turns[: step.fork.num_turns])


def failures(outcomes: Sequence[Outcome]) -> list[str]:
    """The scenes in which the cache did not help, each with the reason."""
    return [
        f"the cache did not help in scene {number}, {outcome.scene.title}: {outcome.failure}"
        for number, outcome in enumerate(outcomes, 1)
        if outcome.failure
    ]


def praise(outcomes: Sequence[Outcome]) -> str:
    """The last line of a demo in which no scene failed."""
    everything = [one for outcome in outcomes for one in outcome.measured]
    off, on = _medians([one for outcome in outcomes for one in outcome.seen_before])
    num_same = sum(one.is_same_reply for one in everything)
    return (
        f"The cache helped in every scene. What had been read once was answered after {show_ms(on)} instead of "
        f"{show_ms(off)}: {off / on:.0f} times sooner (medians). "
        f"The replies are the same in {num_same} of {len(everything)} cases"
        + (f": {_NEAR_TIE}." if num_same < len(everything) else ".")
    )


def _medians(measured: Sequence[Measured]) -> tuple[float, float]:
    return median(one.off.first_token_ms for one in measured), median(one.on.first_token_ms for one in measured)


def _ignore(_text: str) -> None: ...


@dataclass
class Chart:
    """Prints each step when it was played. The first bar sets the scale of all."""

    console: Console
    scale_ms: float = 0.0

    def title(self, number: int, scene: Scene) -> None:
        self.console.print(f"\n{number} · {scene.title}", style="bold")
        self.console.print(f"    {scene.story}", style="dim")
        if scene.num_models > 1:
            self.console.print(f"    {_SAME_FILE}", style="dim")

    def question(self, step: Step) -> None:
        self.console.print(Text.assemble("\n    ", (step.label, "cyan"), f" · {step.question}"))

    def bar(self, name: str, turn: TimedReply, colour: str) -> None:
        self.scale_ms = self.scale_ms or turn.first_token_ms
        bar = draw_bar(turn.first_token_ms / self.scale_ms)
        ms = show_ms(turn.first_token_ms)
        self.console.print(Text.assemble(f"      {name:<4}", (bar, colour), f" {ms}  ", (_counts(turn), "dim")))

    def reply(self, measured: Measured) -> None:
        self._said(measured.on.text)
        if not measured.is_same_reply:
            self._said(f"with the cache off: {measured.off.text}")

    def _said(self, text: str) -> None:
        self.console.print(f"      → {printable(text.strip())}", style="dim")


def draw_bar(share: float) -> str:
    """A bar in eighths of a character, at least one of them wide."""
    full, rest = divmod(max(1, round(8 * _WIDTH * share)), 8)
    return "█" * _MAX_WIDTH if full >= _MAX_WIDTH else "█" * full + _EIGHTHS[rest].strip()


def _counts(turn: TimedReply) -> str:
    reused, total = turn.reused or 0, turn.prompt_tokens or 0
    return f"reused {reused:,}, read {total - reused:,}" if reused else f"read {total:,}"


def add_parser(subparsers: "argparse._SubParsersAction[CommandLine]") -> None:
    """Adds the command `demo`."""
    parser = subparsers.add_parser(
        "demo",
        usage="leftoff demo [MODEL] [options]",
        description="Plays scripted conversations with the cache off and on. Exit code 1: the cache did not help.",
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help="GGUF file, or org/repo[:quant] of the Hugging Face hub (default: the model that comes with leftoff)",
    )
    add_settings(parser, _SETTINGS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Plays all scenes; returns 1 if the cache did not help in one of them."""
    began = time.monotonic()
    console = terminal(wraps=True)
    quiet_logs()
    with ended_by_signals(), TemporaryDirectory(prefix="leftoff-demo-") as folder:
        outcomes = _play(console, _settings(args, folder))
    _summarise(console, outcomes, time.monotonic() - began)
    return _conclude(console, outcomes)


def _settings(args: argparse.Namespace, folder: str) -> Settings:
    """One slot, the hardest case; a disk cache of its own; and no work when idle: it would slow the other server."""
    return dataclasses.replace(settings_from(args), slots=1, cache_dir=folder, read_ahead=False)


def _play(console: Console, settings: Settings) -> list[Outcome]:
    def leave(code: int) -> None:
        shutil.rmtree(settings.cache_dir, ignore_errors=True)
        os._exit(code)

    def start(settings: Settings, gate: Gate) -> ModelHost:
        return load_host(console, settings, leave, gate=gate)

    loading = partial(ends_at_once, console, leave)
    on_disk, in_ram = partial(start, settings), partial(start, dataclasses.replace(settings, disk=0))
    with (
        closing(Side([in_ram, in_ram], loading, forgets=True)) as off,
        closing(Side([on_disk, in_ram], loading, forgets=False)) as on,
    ):
        console.print(f"\nleftoff demo · {printable(on.model_name)}\n", style="bold")
        console.print(_INTRO)
        chart = Chart(console)
        scenes = [scene for scene in SCENES if settings.disk or not scene.restarts]
        return [_play_scene(chart, number, scene, off, on) for number, scene in enumerate(scenes, 1)]


def _play_scene(chart: Chart, number: int, scene: Scene, off: Side, on: Side) -> Outcome:
    chart.title(number, scene)
    if scene.restarts:
        off.restart()
        on.restart()
    return Outcome(scene, [_measure(chart, scene, step, off, on) for step in scene.steps])


def _measure(chart: Chart, scene: Scene, step: Step, off: Side, on: Side) -> Measured:
    """Asks both servers, one right after the other: other load on the machine slows both alike."""
    chart.question(step)
    without = off.play(scene, step)
    chart.bar("off", without, "red")
    with_cache = on.play(scene, step)
    chart.bar("on", with_cache, "green")
    measured = Measured(step, without, with_cache)
    chart.reply(measured)
    return measured


def _summarise(console: Console, outcomes: Sequence[Outcome], seconds: float) -> None:
    console.print(f"\nTo the first token, all requests of a scene together ({seconds:.0f} s in all)", style="bold")
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("")
    table.add_column("off", justify="right", style="red")
    table.add_column("on", justify="right", style="green")
    for number, outcome in enumerate(outcomes, 1):
        table.add_row(f"{number} · {outcome.scene.title}", show_ms(outcome.off_ms), show_ms(outcome.on_ms))
    console.print(table)


def _conclude(console: Console, outcomes: Sequence[Outcome]) -> int:
    problems = failures(outcomes)
    if not problems:
        console.print(f"\n{praise(outcomes)}", style="bold green")
    for problem in problems:
        print(f"leftoff: FAILED: {problem}", file=sys.stderr)
    return 1 if problems else 0
