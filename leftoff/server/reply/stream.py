"""Carries a reply from the engine's thread to the event loop: its text token by token, then how it ended."""

import base64
import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import NamedTuple

import numpy as np

from leftoff.cache.report import ReuseReport
from leftoff.chat.chat import ChatPrompt
from leftoff.chat.formats.parts import ParsedReply, Part, join_parts
from leftoff.chat.replies import Written
from leftoff.chat.tokenizer import TextStream
from leftoff.chat.verbatim import written_tokens
from leftoff.engine.sampler import log_probabilities
from leftoff.host.host import HostClosedError, ModelHost
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
    """How much of the prompt is read; `reused` tokens of it came from the cache."""

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
    text: str = ""
    parts: tuple[Part, ...] = ()
    error: Exception | None = None

    @property
    def failure(self) -> Exception | None:
        """The error to tell the client; None if the reply is whole.

        A cancelled reply whose client is still there has lost its host.
        """
        is_cancelled = self.error is None and self.finish is Finish.CANCELLED
        return HostClosedError("its host was closed") if is_cancelled else self.error


_MAX_OPENING_TOKENS = 16  # of the prompt, which the parser looks at: a template may open the reasoning
_LONG_SECONDS = 10.0

Event = Progress | Piece | End
Deliver = Callable[["ReplyStream", Event], None]


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
    """One reply: a `Sink` for the scheduler, which sends events to the event loop; the last of them is `End`.

    The engine's thread turns tokens into text and parts, since they say whether the reply goes on. Everything that
    follows from a reply's end is done on the event loop, before that is delivered.
    """

    end: End
    said = ParsedReply()  # what it says, and its text: both are empty before it has ended
    text = ""
    _reading: ReadingLog

    def __init__(
        self, host: ModelHost, job: ReplyJob, request_id: str, index: int, deliver: Deliver, *, shows_progress: bool
    ) -> None:
        """Submits the job. `deliver` is called on the event loop. `index` is among the replies to a request."""
        host.require_alive()
        if job.prompt.length >= host.context_tokens:
            raise PromptTooLongError(job.prompt.length, host.context_tokens)
        self.id = request_id
        self.job = job
        self.index = index
        self._report: ReuseReport | None = None
        self.pieces: list[Piece] = []
        self._host = host
        self._num_forgets = host.num_forgets
        self._text = TextStream(
            host.model.vocabulary, job.stops, shown=host.prompts.shown_tokens if job.output else frozenset()
        )
        self._parser = None
        if job.output is not None:
            prompt_end = host.model.vocabulary.detokenize(job.prompt.tokens[-_MAX_OPENING_TOKENS:])
            self._parser = job.output.parser(prompt_end.decode("utf-8", "replace"))
        self._bridge = loop_bridge()
        self._deliver = deliver
        self.is_complete = False  # the slot is free; events may still be on their way
        self._shows_progress = shows_progress
        run = Run(replace(job, max_tokens=_max_tokens(host, job)), self)
        self.timings = run.timings
        if job.asked_at is not None:
            run.timings.submitted, run.is_due = job.asked_at, True
        host.scheduler.submit(run)
        self.run = run  # until its end, and not before it is accepted: they know each other, and have its files

    @property
    def stop(self) -> str | None:
        """The stop string that ended the reply."""
        return self._text.stop

    @property
    def report(self) -> ReuseReport:
        """Where its prompt came from: known from the first event on, unless that is the end of a reply that failed."""
        assert self._report is not None
        return self._report

    # --- scheduler.Sink, on the engine's thread

    def started(self, report: ReuseReport) -> None:
        self._report = report
        self._reading = ReadingLog(report.prompt_tokens, report.reused)
        self._send_progress(report, report.reused)

    def progress(self, num_read: int) -> None:
        self._reading.saw(num_read)
        self._send_progress(self.report, num_read)

    def token(self, token: int, logits: Logits | None) -> bool:
        chosen, top = chances_of(token, logits, self.job.num_top_logprobs) if logits is not None else (None, ())
        text = self._text.push(token)
        parts = self._parser.push(text) if self._parser else ()
        piece = Piece(token, text, parts, chosen, top)
        self.pieces.append(piece)
        self._send(piece, is_urgent=len(self.pieces) == 1)
        return self._text.stop is None and not (self._parser and self._parser.is_over)

    def finished(self, finish: Finish, timings: Timings, error: Exception | None) -> None:  # noqa: ARG002
        self.is_complete = True
        self._bridge.put(partial(self._finish, finish, error), is_urgent=True)

    # --- on the event loop

    def _finish(self, finish: Finish, error: Exception | None) -> None:
        try:
            self.end = self._end(finish, error)
        except Exception as unforeseen:  # without an end the client would wait for ever
            logger.exception("the end of a reply could not be read")
            self.end = End(Finish.FAILED, error=unforeseen)
        self._deliver(self, self.end)
        del self.run, self._deliver  # both know this stream: the files of its request go with it, not some time later

    def _end(self, finish: Finish, error: Exception | None) -> End:
        text_of, job = self._host.model.vocabulary.text, self.job
        record = record_of(self.id, job.caller, self.run, self._report, finish, job.notes, error, text_of)
        saved_ms = self._host.cache.costs.cold_ms(record.reused)
        self._host.log.add(replace(record, model=self._host.name, saved_ms=round(saved_ms, 3)))
        text = self._text.close()
        parts: tuple[Part, ...] = ()
        if self._parser is not None:
            parts = self._parser.push(text) + self._parser.close(is_cut=finish is not Finish.END)
        self.text = "".join(piece.text for piece in self.pieces) + text
        self.said = join_parts(chain(*(piece.parts for piece in self.pieces), parts))
        if self.job.chat is not None and self.pieces and finish is not Finish.FAILED:
            call_ids = [self.call_id(index) for index in range(len(self.said.calls))]
            written = self._written(self.job.chat)
            after_reply(self._host, self.job, written, call_ids, finish, self._num_forgets)
        while self.stop is not None and self.pieces and not self.pieces[-1].text:
            self.pieces.pop()  # the stop string was not said
        return End(finish, text, parts, error)

    def _written(self, chat: ChatPrompt) -> Written:
        tokens = tuple(piece.token for piece in self.pieces)
        if self._text.is_stopped:
            tokens = written_tokens(self._host.prompts, tokens, self.text)
        return Written(tokens, self.text, self.said, chat.moved)

    def call_id(self, index: int) -> str:
        """The id of a tool call of this reply. Some templates accept only nine letters or digits."""
        digest = hashlib.sha256(f"{self.id}/{index}".encode()).digest()
        return base64.b32encode(digest)[:9].decode().lower()

    def close(self) -> None:
        """Cancels the reply if it is still running."""
        if not self.is_complete:
            self._host.scheduler.cancel(self.run)

    def _send_progress(self, report: ReuseReport, num_read: int) -> None:
        if self._shows_progress:  # else it is not sent: every event wakes the loop
            elapsed = 1000 * (time.perf_counter() - self.timings.started)
            self._send(Progress(report.reused, num_read, self.job.prompt.length, elapsed))

    def _send(self, event: Event, *, is_urgent: bool = False) -> None:
        self._bridge.put(partial(self._deliver, self, event), is_urgent=is_urgent)


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
