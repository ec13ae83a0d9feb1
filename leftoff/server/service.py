"""What every dialect talks to: a loaded model, its cache, the engine's thread, and the journal."""

import asyncio
import logging
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar
from weakref import WeakKeyDictionary

from leftoff.cache.report import ReuseReport
from leftoff.chat.chat import Chat, ChatPrompt, Overflow
from leftoff.chat.header_rules import Rules
from leftoff.chat.meter import TooManyTokensError
from leftoff.chat.overflow import ContextOverflowError
from leftoff.chat.prompts import MessageDict, PromptMaker
from leftoff.chat.remembered import RememberedReplies
from leftoff.config import Settings
from leftoff.engine.errors import ModelError
from leftoff.engine.model import Model, Progress
from leftoff.grammar.compile import Grammars
from leftoff.sampling import recommended
from leftoff.scheduler.request import Finish, Request, Timings
from leftoff.scheduler.worker import Worker
from leftoff.server.admin.counts import Counts
from leftoff.server.admin.reuse_log import Journal
from leftoff.server.build import make_scheduler, namespace_secret
from leftoff.server.http.errors import PromptTooLongError, stopping
from leftoff.server.lanes import Lanes
from leftoff.server.reply.loop_bridge import Mailbox
from leftoff.server.reply.read_ahead import Afterwards
from leftoff.server.reply.stream import Deliver, ReplyStream
from leftoff.server.request.job import Order
from leftoff.types import Prompt, owner_of

__all__ = ["Order", "Service"]

logger = logging.getLogger("leftoff.requests")

Result = TypeVar("Result")


class Service:
    """Owns everything that runs. Made once, closed once."""

    def __init__(self, settings: Settings, *, progress: Progress | None = None) -> None:
        self.settings = settings
        model = _open(settings, progress)
        self.worker = Worker(partial(make_scheduler, model, settings))
        self.scheduler = self.worker.scheduler
        self.engine, self.cache = self.scheduler.engine, self.scheduler.cache
        self.secret = namespace_secret(settings, self.cache)
        self.prompts = PromptMaker(model, _template(settings), context_tokens=self.context_tokens)
        remembered = RememberedReplies() if settings.remember_replies else None
        self._chat = Chat(
            self.prompts,
            self.context_tokens,
            rules=_rules(settings),
            overflow=_overflow(settings),
            remembered=remembered,
        )
        self.afterwards = Afterwards(self, self._chat, remembered, reads_ahead=settings.read_ahead)
        self.default_sampling = recommended(model.metadata)
        self.grammars = Grammars(model.vocabulary)
        self.journal = Journal(model.vocabulary, settings.reports)
        self.counts: defaultdict[str, Counts] = defaultdict(Counts)  # by tenant; the engine's thread alone adds to it
        self.started_at = time.time()
        self._mailboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, Mailbox] = WeakKeyDictionary()
        self.lanes = Lanes()

    def close(self) -> None:
        self.lanes.close()
        self.worker.stop()
        self.grammars.close()
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def model(self) -> Model:
        return self.engine.model

    @property
    def model_name(self) -> str:
        return self.settings.alias or self.model.path.stem

    @property
    def context_tokens(self) -> int:
        return self.engine.memory.num_cells

    def chat(
        self,
        messages: Sequence[MessageDict],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        options: Mapping[str, Any] | None = None,
        namespace: str = "",
    ) -> ChatPrompt:
        """The prompt of a conversation, after the rules of the settings, and what they did to it."""
        with _too_long_messages():
            return self._chat.prompt(
                messages,
                tools=tools,
                add_generation_prompt=add_generation_prompt,
                options=options,
                namespace=namespace,
            )

    def render(
        self,
        messages: Sequence[MessageDict],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """A conversation as the model's template writes it, without rules."""
        with _too_long_messages():
            return self._chat.text(messages, tools=tools, add_generation_prompt=add_generation_prompt, options=options)

    def chat_prompt(self, messages: Sequence[MessageDict]) -> Prompt:
        return self.chat(messages).prompt

    async def aside(self, function: Callable[[], Result], num_bytes: int = 0) -> Result:
        """Runs what takes a while on texts and templates, so that the streams of others go on.

        By its size it stands behind short work only, or behind long work too.
        """
        self._refuse_if_stopped()
        try:
            return await self.lanes.run(function, num_bytes)
        except TooManyTokensError as error:
            raise PromptTooLongError(error.num_tokens, self.context_tokens, is_exact=False) from error

    async def between_steps(self, function: Callable[[], Result]) -> Result:
        """Runs what looks at engine or cache, where both stand still."""
        self._refuse_if_stopped()
        return await asyncio.wrap_future(self.worker.call(function))

    def mailbox(self) -> Mailbox:
        """The one of the running loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._mailboxes:
            self._mailboxes[loop] = Mailbox(loop)
        return self._mailboxes[loop]

    def start(self, order: Order, request_id: str = "", deliver: Deliver | None = None) -> ReplyStream:
        """Submits an order. The reply comes through the stream; closing the stream cancels what is left."""
        self._refuse_if_stopped()
        if order.prompt.length >= self.context_tokens:
            raise PromptTooLongError(order.prompt.length, self.context_tokens)
        stream = ReplyStream(self, order, request_id or uuid.uuid4().hex, deliver)
        request = Request(
            order.prompt,
            stream,
            order.sampling,
            max_tokens=self._max_tokens(order),
            namespace=order.namespace,
            wants_logits=order.num_logprobs is not None,
            ignore_end=order.ignore_end,
            constraint=order.constraint,
        )
        stream.request = request
        self.scheduler.submit(request)
        return stream

    def record(self, stream_id: str, order: Order, report: ReuseReport, finish: Finish, timings: Timings) -> None:
        """One plain line per request in the log, and a record in the journal. Called on the engine's thread."""
        record = self.journal.add(stream_id, order, report, finish, timings)
        self.counts[owner_of(order.namespace)].add(record)
        logger.info(
            "%s · %d generated · first token after %.0f ms%s",
            record.line,
            record.generated,
            record.waited_ms + record.prompt_ms,
            "".join(f" · {note}" for note in record.notes),
        )

    def _refuse_if_stopped(self) -> None:
        if not self.worker.is_alive:
            raise stopping()

    def _max_tokens(self, order: Order) -> int:
        room = self.context_tokens - order.prompt.length
        wanted = order.max_tokens if order.max_tokens is not None else self.settings.max_tokens
        return room if wanted < 0 else min(wanted, room)


@contextmanager
def _too_long_messages() -> Iterator[None]:
    try:
        yield
    except ContextOverflowError as error:
        raise PromptTooLongError(
            error.prompt_tokens, error.context_tokens, "messages", is_exact=error.is_exact
        ) from error


def _open(settings: Settings, progress: Progress | None) -> Model:
    model = Model(settings.model, gpu_layers=settings.gpu_layers, progress=progress)
    try:
        model.require_text()
    except ModelError:
        model.close()
        raise
    return model


def _rules(settings: Settings) -> Rules:
    return Rules(settings.drop_header, settings.pin)


def _overflow(settings: Settings) -> Overflow:
    return "cut" if settings.overflow == "cut" else "error"


def _template(settings: Settings) -> str | None:
    return Path(settings.chat_template_file).read_text("utf-8") if settings.chat_template_file else None
