"""Plays the scenes of `leftoff demo` on a server, and says what it took with the cache off and on."""

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass

from leftoff.cli.chat import Conversation
from leftoff.cli.demo.scenes import Scene, Step
from leftoff.cli.talk import LocalModel, Turn, Wishes
from leftoff.server.service import Service

_WISHES = Wishes(temperature=0, max_tokens=32)
_WARM_UP = [{"role": "user", "content": "Hello!"}]


@dataclass(frozen=True)
class Measured:
    """One step, with the cache off and on."""

    step: Step
    off: Turn
    on: Turn

    @property
    def is_reused(self) -> bool:
        """Whether most of the prompt came from the cache."""
        return 2 * (self.on.reused or 0) > (self.on.prompt_tokens or 0)

    @property
    def is_same_reply(self) -> bool:
        return self.off.text == self.on.text


class Side:
    """A server, and the conversations with it. One that forgets empties its cache before each request."""

    def __init__(self, start: Callable[[], Service], *, forgets: bool) -> None:
        self._start = start
        self._forgets = forgets
        self._threads: dict[str, Conversation] = {}
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

    def play(self, scene: Scene, step: Step) -> Turn:
        conversation = self._thread(scene, step)
        if self._forgets:
            self._service.worker.call(self._service.cache.clear).result()
        turn = self._model.ask(conversation.asking(step.question), _ignore)
        conversation.add(step.question, turn.text)
        return turn

    def _open(self) -> None:
        with ExitStack() as running:  # an engine whose thread still runs when Python ends takes the process down
            self._service = self._start()
            self._model = running.enter_context(closing(LocalModel(self._service, _WISHES)))
            self._model.ask(_WARM_UP, _ignore)  # the first request of a process pays for what all of them use
            self._running = running.pop_all()

    def _thread(self, scene: Scene, step: Step) -> Conversation:
        if step.thread not in self._threads:
            self._threads[step.thread] = self._forked(step) or Conversation(scene.system)
        return self._threads[step.thread]

    def _forked(self, step: Step) -> Conversation | None:
        if step.fork is None:
            return None
        origin = self._threads[step.fork.thread]
        return Conversation(origin.system, origin.turns[: step.fork.num_turns])


def _ignore(_text: str) -> None: ...
