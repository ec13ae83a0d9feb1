"""Plays the scenes of `leftoff demo` with the cache off and on, and decides whether the cache helped."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from statistics import median

from leftoff.cli.chat import ChatHistory
from leftoff.cli.talk import LocalModel, ReplyOptions, TimedReply
from leftoff.cli.units import show_ms
from leftoff.host.host import ModelHost
from leftoff.scenes import Scene, Step

_OPTIONS = ReplyOptions(temperature=0, max_tokens=32)
_WARM_UP = [{"role": "user", "content": "Hello!"}]
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

    def __init__(self, start: Callable[[], ModelHost], *, forgets: bool) -> None:
        self._start = start
        self._forgets = forgets
        self._threads: dict[str, ChatHistory] = {}
        self._running = ExitStack()
        self._open()

    @property
    def model_name(self) -> str:
        return self._model.name

    def close(self) -> None:
        self._running.close()

    def restart(self) -> None:
        self.close()
        self._open()

    def play(self, scene: Scene, step: Step) -> TimedReply:
        conversation = self._thread(scene, step)
        if self._forgets:
            self._host.call(self._host.cache.clear).result()
        turn = self._model.ask(conversation.asking(step.question), _ignore)
        conversation.add(step.question, turn.text)
        return turn

    def _open(self) -> None:
        with ExitStack() as running:  # Python crashes at exit if the engine's thread still runs
            self._host = self._start()
            self._model = running.enter_context(closing(LocalModel(self._host, _OPTIONS)))
            self._model.ask(_WARM_UP, _ignore)  # the first request of a process is slower than all others
            self._running = running.pop_all()

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
