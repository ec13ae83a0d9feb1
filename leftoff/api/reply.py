"""A reply on its way from the engine's thread to a client: text, token by token, then how it ended."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Self

import numpy as np

from leftoff.api.order import Order
from leftoff.cache.report import ReuseReport
from leftoff.chat.text import TextStream
from leftoff.core import Logits
from leftoff.scheduler.request import Finish, Request, Timings

if TYPE_CHECKING:
    from leftoff.api.service import Service


@dataclass(frozen=True, slots=True)
class Progress:
    """Part of the prompt has been read; `reused` of it before."""

    reused: int
    num_read: int
    total: int
    ms: float


@dataclass(frozen=True, slots=True)
class TokenChance:
    """A token and its log-probability."""

    token: int
    logprob: float


@dataclass(frozen=True, slots=True)
class Piece:
    """One token of the reply. Its text may be empty, or hold what earlier tokens had held back."""

    token: int
    text: str
    chosen: TokenChance | None = None
    top: tuple[TokenChance, ...] = ()


@dataclass(frozen=True)
class End:
    """How it ended. `text` is what was held back until then."""

    finish: Finish
    text: str
    stop: str | None
    timings: Timings
    report: ReuseReport | None
    error: Exception | None = None


Event = Progress | Piece | End
Deliver = Callable[[Event], None]


class ReplyStream:
    """A sink of the scheduler and an async iterator of events, the last of which is `End`."""

    request: Request

    def __init__(self, service: "Service", order: Order, request_id: str, deliver: Deliver | None = None) -> None:
        """`deliver` gets the events on the event loop, instead of who iterates."""
        self.id = request_id
        self.order = order
        self.report: ReuseReport | None = None
        self._service = service
        self._text = TextStream(service.model.vocabulary, order.stops, show_control=order.show_control)
        self._mailbox = service.mailbox()
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._deliver = deliver or self._events.put_nowait
        self._ended = False

    # --- scheduler.Sink, on the engine's thread

    def started(self, report: ReuseReport) -> None:
        self.report = report
        self._send_progress(report, report.reused)

    def progress(self, num_read: int) -> None:
        assert self.report is not None
        self._send_progress(self.report, num_read)

    def token(self, token: int, logits: Logits | None) -> bool:
        num_top = self.order.num_logprobs
        chosen, top = _chances(token, logits, num_top) if logits is not None and num_top is not None else (None, ())
        self._send(Piece(token, self._text.push(token), chosen, top))
        return not self._text.is_stopped

    def finished(self, finish: Finish, timings: Timings, error: Exception | None) -> None:
        if self.report is not None:
            self._service.record(self.id, self.order, self.report, finish, timings)
        self._ended = True
        self._send(End(finish, self._text.close(), self._text.stop, timings, self.report, error))

    # --- for the dialects, on the event loop

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            event = await self._events.get()
            yield event
            if isinstance(event, End):
                return

    async def collect(self) -> tuple[str, list[Piece], End]:
        """The whole reply at once."""
        pieces: list[Piece] = []
        async for event in self:
            if isinstance(event, Piece):
                pieces.append(event)
            elif isinstance(event, End):
                return "".join(piece.text for piece in pieces) + event.text, pieces, event
        raise RuntimeError("a reply without an end")

    def close(self) -> None:
        """Cancels what is left: the client went away, or has enough."""
        if not self._ended:
            self._service.scheduler.cancel(self.request)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def _send_progress(self, report: ReuseReport, num_read: int) -> None:
        elapsed = 1000 * (time.perf_counter() - self.request.timings.started)
        self._send(Progress(report.reused, num_read, self.order.prompt.length, elapsed))

    def _send(self, event: Event) -> None:
        self._mailbox.put(partial(self._deliver, event))


def _chances(token: int, logits: Logits, num_top: int) -> tuple[TokenChance, tuple[TokenChance, ...]]:
    shifted = logits.astype(np.float64) - float(logits.max())
    logprobs = shifted - np.log(np.exp(shifted).sum())
    top = np.argpartition(-logprobs, min(num_top, logprobs.size - 1))[:num_top]
    ordered = top[np.argsort(-logprobs[top])]
    return TokenChance(token, float(logprobs[token])), tuple(TokenChance(int(t), float(logprobs[t])) for t in ordered)
