"""Carries a reply from the engine's thread to the event loop: its text token by token, then how it ended."""

import asyncio
import base64
import hashlib
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import NamedTuple, Self

import numpy as np

from leftoff.cache.report import ReuseReport
from leftoff.chat.formats.parts import ParsedReply, Part, join_parts, parse_arguments
from leftoff.chat.replies import Written
from leftoff.chat.tokenizer import TextStream
from leftoff.chat.verbatim import written_tokens
from leftoff.engine.sampler import log_probabilities
from leftoff.host.host import ModelHost
from leftoff.host.request_log import record_of
from leftoff.scheduler.job import Finish, Timings
from leftoff.scheduler.run import Run
from leftoff.server.http.errors import PromptTooLongError
from leftoff.server.http.loop_bridge import loop_bridge
from leftoff.server.reply.read_ahead import after_reply
from leftoff.server.request.job import ReplyJob
from leftoff.types import Logits

logger = logging.getLogger(__name__)
request_logger = logging.getLogger("leftoff.requests")


@dataclass(frozen=True, slots=True)
class Progress:
    """So much of the prompt is read; `reused` tokens of it came from the cache."""

    reused: int
    num_read: int
    total: int
    ms: float


@dataclass(frozen=True, slots=True)
class TokenChance:
    """A token and its log-probability."""

    token: int
    logprob: float


class Piece(NamedTuple):
    """One token of the reply: its text, and what was parsed from it.

    Both may be empty, or include text held back before. There are parts only if the job says how to parse them.
    """

    token: int
    text: str
    parts: tuple[Part, ...] = ()
    chosen: TokenChance | None = None
    top: tuple[TokenChance, ...] = ()


@dataclass(frozen=True)
class End:
    """The end of a reply. `text` and `parts` are what was held back until then."""

    finish: Finish
    text: str
    parts: tuple[Part, ...]
    num_calls: int
    stop: str | None
    timings: Timings
    report: ReuseReport | None
    error: Exception | None = None
    has_half_call: bool = False  # the last call is incomplete


_MOST_OPENING_TOKENS = 16  # of the prompt, which the parser looks at: a template may open the reasoning
_LONG_SECONDS = 10.0

Event = Progress | Piece | End
Deliver = Callable[[Event], None]


class ReadingLog:
    """Logs how far a prompt is read, now and then, if it takes long."""

    def __init__(self, total: int, num_read: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._total = total
        self._clock = clock
        self._last = num_read, clock()

    def saw(self, num_read: int) -> None:
        """The line gives the rate since the last one, and the time that is left at that rate."""
        now, (before, since) = self._clock(), self._last
        if now - since < _LONG_SECONDS or num_read >= self._total:
            return
        self._last = num_read, now
        rate = (num_read - before) / (now - since)
        if rate > 0:  # else it was preempted, and begins anew
            left = timedelta(seconds=round((self._total - num_read) / rate))
            line = f"reading {num_read:,} of {self._total:,} tokens · {rate:.0f} tokens/s · {left} left"
            request_logger.info("%s", line)


class ReplyStream:
    """A `Sink` for the scheduler, and an async iterator of events that ends with `End`."""

    run: Run
    _reading: ReadingLog

    def __init__(
        self, host: ModelHost, job: ReplyJob, request_id: str, deliver: Deliver | None, shows_progress: bool
    ) -> None:
        """Events go to `deliver`, on the event loop, or else to the iterator. Progress is sent only if it is shown."""
        self.id = request_id
        self.job = job
        self.report: ReuseReport | None = None
        self._host = host
        self._text = TextStream(
            host.model.vocabulary,
            job.stops,
            show_control=job.show_control,
            shown=host.prompts.shown_tokens if job.output else frozenset(),
        )
        self._parser = None
        if job.output is not None:
            prompt_end = host.model.vocabulary.detokenize(job.prompt.tokens[-_MOST_OPENING_TOKENS:])
            self._parser = job.output.parser(prompt_end.decode("utf-8", "replace"))
        self._tokens: list[int] = []
        self._texts: list[str] = []
        self._parts: list[Part] = []
        self._bridge = loop_bridge()
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._deliver = deliver or self._events.put_nowait
        self.is_complete = False  # the slot is free; events may still be on their way
        self._has_begun = False
        self._shows_progress = shows_progress

    # --- scheduler.Sink, on the engine's thread

    def started(self, report: ReuseReport) -> None:
        self.report = report
        self._reading = ReadingLog(report.prompt_tokens, report.reused)
        self._send_progress(report, report.reused)

    def progress(self, num_read: int) -> None:
        assert self.report is not None
        self._reading.saw(num_read)
        self._send_progress(self.report, num_read)

    def token(self, token: int, logits: Logits | None) -> bool:
        chosen, top = chances_of(token, logits, self.job.num_top_logprobs) if logits is not None else (None, ())
        text = self._text.push(token)
        if self._parser is None:
            self._send(Piece(token, text, (), chosen, top))
            return self._text.stop is None
        parts = self._parser.push(text)
        self._tokens.append(token)
        self._texts.append(text)
        self._parts += parts
        self._send(Piece(token, text, parts, chosen, top))
        return self._text.stop is None and not self._parser.is_over

    def finished(self, finish: Finish, timings: Timings, error: Exception | None) -> None:
        self.is_complete = True
        try:
            end = self._end(finish, timings, error)
        except Exception as unforeseen:  # without an end the client would wait for ever
            logger.exception("the end of a reply could not be read")
            end = End(Finish.FAILED, "", (), 0, None, timings, self.report, unforeseen)
        self._send(end)

    def _end(self, finish: Finish, timings: Timings, error: Exception | None) -> End:
        text_of = self._host.model.vocabulary.text
        self._host.log.add(record_of(self.id, self.run, self.report, finish, self.job.notes, error, text_of))
        text = self._text.close()
        is_cut = finish is not Finish.END
        parts = self._parser.push(text) + self._parser.close(is_cut=is_cut) if self._parser else ()
        num_calls = self._parser.num_calls if self._parser else 0
        said = join_parts((*self._parts, *parts))
        has_half_call = bool(said.calls) and parse_arguments(said.calls[-1].arguments) is None
        if self.job.chat is not None and self._tokens and finish is not Finish.FAILED:
            call_ids = [self.call_id(index) for index in range(len(said.calls))]
            after_reply(self._host, self.job, self._written("".join((*self._texts, text)), said), call_ids, finish)
        return End(finish, text, parts, num_calls, self._text.stop, timings, self.report, error, has_half_call)

    def _written(self, text: str, said: ParsedReply) -> Written:
        tokens = tuple(self._tokens)
        if self._text.is_stopped:
            tokens = written_tokens(self._host.prompts, tokens, text)
        return Written(tokens, text, said, self.job.chat.moved if self.job.chat else ())

    # --- for the dialects, on the event loop

    def call_id(self, index: int) -> str:
        """The id of a tool call of this reply. Some templates accept only nine letters or digits."""
        digest = hashlib.sha256(f"{self.id}/{index}".encode()).digest()
        return base64.b32encode(digest)[:9].decode().lower()

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            event = await self._events.get()
            yield event
            if isinstance(event, End):
                return

    def close(self) -> None:
        """Cancels the reply if it is still running."""
        if not self.is_complete:
            self._host.scheduler.cancel(self.run)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def _send_progress(self, report: ReuseReport, num_read: int) -> None:
        if not self._shows_progress:
            return  # every event wakes the loop
        elapsed = 1000 * (time.perf_counter() - self.run.timings.started)
        self._send(Progress(report.reused, num_read, self.job.prompt.length, elapsed))

    def _send(self, event: Event) -> None:
        is_urgent = isinstance(event, End) or (isinstance(event, Piece) and not self._has_begun)
        self._has_begun |= is_urgent
        self._bridge.put(partial(self._deliver, event), is_urgent=is_urgent)


def start_reply(
    host: ModelHost,
    job: ReplyJob,
    request_id: str = "",
    deliver: Deliver | None = None,
    shows_progress: bool = False,
) -> ReplyStream:
    """Submits a job. The reply comes through the stream; closing the stream cancels what is left of it."""
    host.require_alive()
    if job.prompt.length >= host.context_tokens:
        raise PromptTooLongError(job.prompt.length, host.context_tokens)
    stream = ReplyStream(host, job, request_id or uuid.uuid4().hex, deliver, shows_progress)
    stream.run = Run(replace(job, max_tokens=_max_tokens(host, job)), stream)
    host.scheduler.submit(stream.run)
    return stream


def _max_tokens(host: ModelHost, job: ReplyJob) -> int:
    room = host.context_tokens - job.prompt.length
    wanted = job.max_tokens if job.max_tokens is not None else host.settings.max_tokens
    return room if wanted < 0 else min(wanted, room)


def chances_of(token: int, logits: Logits, num_top: int) -> tuple[TokenChance, tuple[TokenChance, ...]]:
    """The log-probability of a token, and of the `num_top` likeliest at its position."""
    logprobs = log_probabilities(logits)
    top = np.argpartition(-logprobs, min(num_top, logprobs.size - 1))[:num_top]
    ordered = top[np.argsort(-logprobs[top])]
    return TokenChance(token, float(logprobs[token])), tuple(TokenChance(int(t), float(logprobs[t])) for t in ordered)
