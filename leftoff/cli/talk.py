"""Whom `leftoff chat` talks to, and a model in this process as one of them."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from leftoff.chat.conversation import Conversation
from leftoff.chat.template.render import TemplateError
from leftoff.cli.conversation import Message
from leftoff.cli.units import show_ms
from leftoff.engine.errors import EngineError
from leftoff.errors import LeftoffError
from leftoff.sampling import Sampling
from leftoff.server.http.errors import ApiError
from leftoff.server.reply.stream import End, Piece, start_reply
from leftoff.server.request.job import Order
from leftoff.server.service import Service

Show = Callable[[str], None]


class TalkError(LeftoffError):
    """A turn that came to nothing. The message says why and what to do."""


@dataclass(frozen=True)
class Wishes:
    """How replies are to be made. None leaves it to whoever makes them."""

    temperature: float | None = None
    max_tokens: int | None = None

    def sampling(self, defaults: Sampling) -> Sampling:
        return defaults if self.temperature is None else replace(defaults, temperature=self.temperature)


@dataclass(frozen=True)
class Turn:
    """A reply, and what it took. A server that does not count leaves the counts out."""

    text: str
    first_token_ms: float
    prompt_tokens: int | None = None
    reused: int | None = None

    def line(self) -> str:
        if self.prompt_tokens is None or self.reused is None:
            return f"first token after {show_ms(self.first_token_ms)}"
        computed = self.prompt_tokens - self.reused
        return f"reused {self.reused:,} · computed {computed:,} · first token after {show_ms(self.first_token_ms)}"


class Talker(Protocol):
    """Answers one turn at a time. `show` gets the reply piece by piece."""

    @property
    def name(self) -> str: ...
    def ask(self, messages: Sequence[Message], show: Show) -> Turn: ...
    def close(self) -> None: ...


class LocalModel:
    """A model in this process. An interrupt ends the reply and leaves the model usable."""

    def __init__(self, service: Service, wishes: Wishes) -> None:
        self._service = service
        self._wishes = wishes
        self._runner = asyncio.Runner()

    @property
    def name(self) -> str:
        return self._service.model_name

    def ask(self, messages: Sequence[Message], show: Show) -> Turn:
        try:
            return self._runner.run(self._ask(messages, show))
        except (ApiError, EngineError, TemplateError) as error:
            raise TalkError(str(error)) from error

    def close(self) -> None:
        self._runner.close()
        self._service.close()

    async def _ask(self, messages: Sequence[Message], show: Show) -> Turn:
        prompt = self._service.chat(Conversation(messages)).prompt
        order = Order(prompt, self._wishes.sampling(self._service.default_sampling), max_tokens=self._wishes.max_tokens)
        pieces: list[str] = []
        async with start_reply(self._service, order) as stream:
            async for event in stream:
                if isinstance(event, Piece | End):
                    pieces.append(event.text)
                    show(event.text)
                if isinstance(event, End):
                    return _local_turn("".join(pieces), event)
        raise TalkError("the reply has no end: please report this")


def _local_turn(text: str, end: End) -> Turn:
    if end.error is not None or end.report is None:
        raise TalkError(f"the reply failed: {end.error or end.finish.value}")
    waited = end.timings.waited_ms + end.timings.prompt_ms
    return Turn(text, waited, end.report.prompt_tokens, end.report.reused)
