"""leftoff without a server: a model, its cache and a scheduler in this process, for programs that embed it.

    with Session() as session:
        reply = session.generate([{"role": "user", "content": "Hello!"}])
        print(reply.text, reply.report.line())

A session belongs to the thread that uses it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np

from leftoff.cache.cache import Cache
from leftoff.cache.report import ReuseReport
from leftoff.chat.conversation import Conversation
from leftoff.chat.meter import TooManyTokensError
from leftoff.chat.template.render import MessageDict
from leftoff.chat.tokenizer import TextStream
from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.errors import NoRoomError
from leftoff.engine.model import Model, Progress
from leftoff.engine.model_settings import ModelSettings
from leftoff.engine.sampler import log_probabilities
from leftoff.host.build import load_model
from leftoff.host.host import ModelHost
from leftoff.hub.reference import default_model
from leftoff.sampling import Sampling
from leftoff.scheduler.job import Finish, Job, Timings
from leftoff.scheduler.run import Run
from leftoff.scheduler.scheduler import Scheduler
from leftoff.types import Logits, Prompt, Tokens

_PICTURE_S = 1.0  # between looks whether a picture is encoded, if nobody tells

PromptLike = str | Sequence[int] | Tokens | Sequence[MessageDict]


@dataclass
class Reply:
    """A whole reply."""

    text: str
    tokens: list[int]
    finish: Finish
    report: ReuseReport
    timings: Timings


class Session:
    """Generates text, reusing the state of prompts read before. The default model ships with leftoff."""

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        context: ContextSettings | None = None,
        ram_bytes: int = 2 << 30,
        model_settings: ModelSettings | None = None,
        progress: Progress | None = None,
    ) -> None:
        context = context or ContextSettings()
        loaded = load_model(Path(model or default_model()), model_settings or ModelSettings(), context, progress)
        self._host = ModelHost(loaded, partial(_scheduler, context, ram_bytes), has_thread=False)

    def close(self) -> None:
        self._host.close()

    @property
    def engine(self) -> LlamaEngine:
        return self._host.engine

    @property
    def cache(self) -> Cache:
        return self._host.cache

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def generate(
        self,
        prompt: PromptLike,
        *,
        max_tokens: int | None = None,
        sampling: Sampling | None = None,
        stop: str | Sequence[str] = (),
        namespace: str = "",
    ) -> Reply:
        """Generates a reply to text, token ids or chat messages, and returns it when it has ended."""
        stream = self.stream(prompt, max_tokens=max_tokens, sampling=sampling, stop=stop, namespace=namespace)
        for _ in stream:
            pass
        return stream.reply

    def logprobs(self, prompt: PromptLike, *, namespace: str = "") -> list[float]:
        """The log-probability of every token of a prompt but the first, given those before it.

        The prompt is read from its beginning: what is cached has no logits. Later prompts go on from it as usual.
        """
        read, chances = self._prompt(prompt), list[float]()

        def score(position: int, logits: Logits) -> None:
            chances.append(float(log_probabilities(logits)[read.tokens[position]]))

        for _ in self._submit(Job(read, max_tokens=0, namespace=namespace, score=score)):
            pass
        return chances

    def stream(
        self,
        prompt: PromptLike,
        *,
        max_tokens: int | None = None,
        sampling: Sampling | None = None,
        stop: str | Sequence[str] = (),
        namespace: str = "",
    ) -> "ReplyIterator":
        """Generates a reply bit by bit. Leaving the loop early cancels the rest."""
        job = Job(self._prompt(prompt), sampling or Sampling(), max_tokens=max_tokens, namespace=namespace)
        return self._submit(job, (stop,) if isinstance(stop, str) else tuple(stop))

    def _submit(self, job: Job, stop: tuple[str, ...] = ()) -> "ReplyIterator":
        return ReplyIterator(self._host.scheduler, job, TextStream(self._host.model.vocabulary, stop))

    def _prompt(self, prompt: PromptLike) -> Prompt:
        if isinstance(prompt, np.ndarray) or (prompt and isinstance(prompt[0], int)):
            return Prompt(np.asarray(prompt, np.int32))
        try:
            if isinstance(prompt, str):
                return self._host.prompts.from_text(prompt)
            pictures = self._host.pictures if self._host.prompts.sees_pictures else None
            return self._host.prompts.from_conversation(Conversation.with_files(prompt, pictures))  # type: ignore[arg-type]
        except TooManyTokensError as error:  # far too long prompts are not tokenised to the end
            raise NoRoomError(f"{error}; the context holds {self._host.context_tokens}") from error


def _scheduler(context: ContextSettings, ram_bytes: int, model: Model) -> Scheduler:
    engine = LlamaEngine(model, context)
    cache = Cache(engine.memory, num_slots=engine.memory.num_sequences, budget_bytes=ram_bytes)
    return Scheduler(engine, cache)


class ReplyIterator:
    """The text of a reply bit by bit, and at the end the whole reply. To the scheduler it is the sink of its run."""

    def __init__(self, scheduler: Scheduler, job: Job, stream: TextStream) -> None:
        self._scheduler = scheduler
        self._stream = stream
        self._texts: list[str] = []
        self._tokens: list[int] = []
        self._report: ReuseReport | None = None
        self._reply: Reply | None = None
        self._error: Exception | None = None
        self._is_over = False
        self._run = Run(job, self)
        scheduler.submit(self._run)
        self._shown = self._steps()

    def __iter__(self) -> Iterator[str]:
        return self._shown

    @property
    def reply(self) -> Reply:
        """The whole reply, after the iteration has ended."""
        if self._reply is None:
            raise RuntimeError("the reply has not ended: iterate to its end first")
        return self._reply

    def _steps(self) -> Iterator[str]:
        num_shown = 0
        try:
            while not self._is_over:
                if not self._scheduler.step():
                    self._scheduler.wait(_PICTURE_S)  # until one is encoded
                yield from filter(None, self._texts[num_shown:])
                num_shown = len(self._texts)
        finally:
            if not self._is_over:
                self._scheduler.cancel(self._run)
                self._scheduler.step()
        if self._error is not None:
            raise self._error

    # --- scheduler.Sink

    def started(self, report: ReuseReport) -> None:
        self._report = report

    def progress(self, num_read: int) -> None: ...

    def token(self, token: int, logits: Logits | None) -> bool:  # noqa: ARG002
        self._tokens.append(token)
        self._texts.append(self._stream.push(token))
        return not self._stream.is_stopped

    def finished(self, finish: Finish, timings: Timings, error: Exception | None) -> None:
        self._is_over, self._error = True, error
        self._texts.append(self._stream.close())
        if self._report is not None:
            self._reply = Reply("".join(self._texts), self._tokens, finish, self._report, timings)
