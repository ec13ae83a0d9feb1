"""Everything that runs behind the HTTP server: a loaded model, its cache, the engine's thread, and the journal.

It knows neither requests of a dialect nor replies: `request/` and `reply/` are built on it.
"""

import asyncio
import ctypes as C
import logging
import os
import time
import weakref
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar, Self, TypeVar
from weakref import WeakKeyDictionary

import msgspec
from starlette.requests import Request
from starlette.types import Scope

from leftoff import __version__
from leftoff.chat.chat import Chat, ChatPrompt, Overflow
from leftoff.chat.conversation import Conversation
from leftoff.chat.header_rules import Rules
from leftoff.chat.meter import TooManyTokensError
from leftoff.chat.overflow import ContextOverflowError
from leftoff.chat.prompts import PromptMaker
from leftoff.chat.replies import RememberedReplies
from leftoff.chat.work import Lanes
from leftoff.config import Settings
from leftoff.engine.model import Progress
from leftoff.grammar.compile import Grammars
from leftoff.grammar.constraint import Trigger
from leftoff.lru import LruCache
from leftoff.sampling import recommended
from leftoff.scheduler.worker import Worker
from leftoff.server.build import (
    fitted,
    header_files,
    make_scheduler,
    namespace_secret,
    open_fleet,
    open_model,
    reply_store,
)
from leftoff.server.http.endpoint import Endpoint, attended
from leftoff.server.http.errors import CLIENT_GONE, ApiError, ErrorShape, PromptTooLongError, stopping
from leftoff.server.http.line_rate import LineRate
from leftoff.server.reuse_log import Counts, Journal, RequestRecord
from leftoff.server.slot_files import SlotFiles
from leftoff.server.tenant import Tenant
from leftoff.types import owner_of

logger = logging.getLogger("leftoff.requests")

Result = TypeVar("Result")

_LOGGED_NOTES = 256
_LOGGED_CHARACTERS = 240  # of what a client has sent
_TRIGGER_BYTES = 16 << 20  # of the grammars of tools
_LONG_HEADER = 256  # tokens: fewer are read at once
_COLLECT_SECONDS = 0.015  # a screen shows no more often
_write = C.PyDLL(None).write  # keeps the interpreter's lock, unlike os.write
_write.argtypes, _write.restype = (C.c_int, C.c_char_p, C.c_size_t), C.c_ssize_t


class Service:
    """Owns the engine's thread and the threads for texts. One per server."""

    def __init__(self, settings: Settings, *, progress: Progress | None = None) -> None:
        settings, self.fit_line = fitted(settings)
        self.settings = settings
        model = open_model(settings, progress)
        self.fleet = open_fleet(settings)
        self.worker = Worker(partial(make_scheduler, model, settings, self.fleet))
        self.scheduler = self.worker.scheduler
        self.engine, self.cache = self.scheduler.engine, self.scheduler.cache
        self.model = model
        self.model_name = settings.alias or model.path.stem
        self.context_tokens = self.engine.memory.num_cells
        self.secret = namespace_secret(settings, self.cache, self.fleet)
        self.prompts = PromptMaker(model, _template(settings), context_tokens=self.context_tokens)
        self._reply_store = reply_store(settings, self.cache)
        self.headers = header_files(settings, self.cache)
        replies = self.fleet.replies(self._reply_store) if self.fleet is not None else self._reply_store
        self.remembered = RememberedReplies(replies) if settings.remember_replies else None
        self.slot_files = SlotFiles(self._reply_store)
        self.chats = Chat(
            self.prompts,
            self.context_tokens,
            rules=_rules(settings),
            overflow=_overflow(settings),
            remembered=self.remembered,
        )
        self.default_sampling = recommended(model.metadata)
        self.grammars = Grammars(model.vocabulary)
        self.call_triggers: LruCache[bytes, tuple[Trigger, ...]] = LruCache(
            max_bytes=_TRIGGER_BYTES, size_of=lambda _, triggers: sum(len(trigger.grammar.lark) for trigger in triggers)
        )
        self.journal = Journal(model.vocabulary, settings.reports)
        self.counts: defaultdict[str, Counts] = defaultdict(Counts)  # by tenant; the engine's thread alone adds to it
        self._logged_notes: LruCache[tuple[str, str], bool] = LruCache(max_entries=_LOGGED_NOTES)
        self._refusals = LineRate()
        self.watchers: list[Callable[[RequestRecord], None]] = []  # called with each record, on the engine's thread
        self.started_at = time.time()
        self._bridges: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopBridge] = WeakKeyDictionary()
        self.lanes = Lanes()

    def close(self) -> None:
        self.lanes.close()
        self.worker.stop()
        if self.fleet is not None:
            self.fleet.close()
        if self._reply_store is not None:
            self._reply_store.close()
        self.grammars.close()
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def announce(self, url: str) -> None:
        """Tells the fleet, if there is one, at which URL this server answers, and from then on what it holds."""
        if self.fleet is not None:
            url = self.settings.advertise or url
            self.fleet.announce(url, self.model_name, __version__, self.secret, self.worker.call, self.scheduler)

    def drain(self) -> None:
        """Tells the fleet that no more requests are wanted."""
        if self.fleet is not None:
            self.fleet.drain()

    def chat(self, conversation: Conversation) -> ChatPrompt:
        """The prompt of a conversation, after header rules and overflow handling."""
        try:
            return self.chats.prompt(conversation)
        except ContextOverflowError as error:
            raise _too_long_messages(error) from error

    def learn_header(self, chat: ChatPrompt) -> None:
        """Keeps the header of a chat on disk if it is long, in the form of a file for `--prewarm`."""
        if self.headers is None or (chat.prompt.header_end or 0) < _LONG_HEADER:
            return
        conversation = chat.conversation
        header = {
            "messages": chat.header,
            "tools": conversation.tools,
            "options": conversation.options,
            "namespace": conversation.namespace,
        }
        self.headers.put(owner_of(conversation.namespace), msgspec.json.encode(header))

    def render(self, conversation: Conversation) -> str:
        """The text that the template renders from a conversation, without header rules."""
        try:
            return self.chats.text(conversation)
        except ContextOverflowError as error:
            raise _too_long_messages(error) from error

    def forget_replies(self, is_meant: Callable[[str], bool]) -> None:
        """Drops the remembered replies of the namespaces that are meant, and the names of slots that were saved."""
        self.slot_files.remove(is_meant)
        self.chats.forget(is_meant)
        if self.remembered is not None:
            self.remembered.remove(is_meant)
        elif self._reply_store is not None:
            self._reply_store.remove(is_meant)

    async def aside(self, function: Callable[[], Result], request: Request | None = None) -> Result:
        """Runs work on texts and templates on a thread for that, so that the streams of others go on.

        A long request waits behind other long ones only, and is given up when its client leaves.
        """
        self.refuse_if_stopped()
        num_bytes = len(await request.body()) if request is not None else 0
        work = self.lanes.run(function, num_bytes)
        try:
            if request is not None and self.lanes.is_long(num_bytes):
                return await attended(request.receive, work)
            return await work
        except TooManyTokensError as error:
            raise PromptTooLongError(error.num_tokens, self.context_tokens, is_exact=False) from error

    async def between_steps(self, function: Callable[[], Result]) -> Result:
        """Runs a function on the engine's thread between two steps, where engine and cache may be inspected."""
        self.refuse_if_stopped()
        return await asyncio.wrap_future(self.worker.call(function))

    def loop_bridge(self) -> "LoopBridge":
        """The bridge to the running event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._bridges:
            self._bridges[loop] = LoopBridge(loop)
        return self._bridges[loop]

    def count(self, record: RequestRecord) -> None:
        """Counts a request that ended, logs its line, and tells the watchers. On the engine's thread."""
        tenant = owner_of(record.namespace)
        self.counts[tenant].add(record)
        for watch in [*self.watchers]:
            watch(record)
        new_notes = [note for note in record.notes if self._logged_notes.get((tenant, note)) is None]
        for note in new_notes:  # what is the same with every request is said once
            self._logged_notes.put((tenant, note), True)
        logger.info("%s", " · ".join([record.line, record.ending, *new_notes]))

    def log_refusal(self, scope: Scope, refusal: ApiError, error: Exception) -> None:
        """Logs one line for a request that ended before it became a job. On the event loop; of a flood only some.

        The journal has it too if its tenant is known, unless it was for a route that is not there: some agents try
        such. Jobs leave lines of their own.
        """
        state = scope.get("state", {})
        is_unforeseen = refusal.code == "internal_error"
        if state.get("has_jobs") and not is_unforeseen:
            return
        tenant: Tenant | None = state.get("tenant")
        if tenant is not None:
            self.counts[tenant.name].refused[str(refusal.status)] += 1
        num_left_out = self._refusals.take(tenant.name if tenant is not None else None)
        if num_left_out is None:
            return
        reason = refusal.message[:_LOGGED_CHARACTERS]
        verb = "cancelled" if refusal.status == CLIENT_GONE else f"refused with {refusal.status}"
        line = f"{scope['method']} {scope['path'][:_LOGGED_CHARACTERS]} {verb}: {reason}"
        if tenant is not None and refusal.code != "not_found":
            self.journal.add_refusal(line, refusal.status, reason, tenant.namespace(None))
        more = f" (and {num_left_out:,} more refused since the last such line)" if num_left_out else ""
        level = logging.ERROR if refusal.status >= 500 else logging.INFO
        logger.log(level, "%s%s", line, more, exc_info=error if is_unforeseen else None)

    def refuse_if_stopped(self) -> None:
        """Raises a 503 if the engine's thread has ended."""
        if not self.worker.is_alive:
            raise stopping()


def _too_long_messages(error: ContextOverflowError) -> PromptTooLongError:
    return PromptTooLongError(error.prompt_tokens, error.context_tokens, "messages", is_exact=error.is_exact)


def _rules(settings: Settings) -> Rules | None:
    rules = (settings.drop_header, settings.pin, settings.move)
    return Rules(*rules) if any(rules) else None


def _overflow(settings: Settings) -> Overflow:
    return "cut" if settings.overflow == "cut" else "error"


def _template(settings: Settings) -> str | None:
    return Path(settings.chat_template_file).read_text("utf-8") if settings.chat_template_file else None


class Dialect(ABC):
    """The routes of one API. `error_shapes` maps path prefixes to the shape of its errors, if that is not OpenAI's."""

    error_shapes: ClassVar[Mapping[str, ErrorShape]] = {}

    def __init__(self, service: Service) -> None:
        self._service = service

    @abstractmethod
    def endpoints(self) -> list[Endpoint]: ...


class LoopBridge:
    """Makes calls of the engine's thread on one event loop, in order. Must be created on the loop.

    `loop.call_soon_threadsafe` makes a system call that releases the interpreter's lock: the engine's thread would lose
    it to the loop just when the next batch is to begin. Here a pipe wakes the loop, by a `write` that keeps the lock.
    Tokens come faster than anybody reads, so calls that are not urgent are collected and made a few milliseconds later.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)  # the loop refers to this object, and must still be collected
        self._calls: deque[Callable[[], None]] = deque()
        self._is_woken = False
        self._is_scheduled = False  # the loop will look for calls by itself soon
        self._read_end, self._write_end = os.pipe()
        for end in (self._read_end, self._write_end):
            os.set_blocking(end, False)
            weakref.finalize(self, os.close, end)  # not before the last user of the bridge is gone
        loop.add_reader(self._read_end, self._on_wake)

    def put(self, call: Callable[[], None], *, is_urgent: bool) -> None:
        """From any thread."""
        self._calls.append(call)
        if not self._is_woken and (is_urgent or not self._is_scheduled):
            self._is_woken = True
            _write(self._write_end, b"!", 1)

    def _on_wake(self) -> None:
        os.read(self._read_end, 1)
        self._is_woken = False  # before the calls are made: one that is put from now on wakes the loop again
        self._make_calls()
        if not self._is_scheduled:
            self._schedule()

    def _on_schedule(self) -> None:
        if not self._calls:
            self._is_scheduled = False  # before the last look, for the same reason
        if self._calls:
            self._schedule()
            self._make_calls()

    def _schedule(self) -> None:
        self._is_scheduled = True
        if (loop := self._loop()) is not None:
            loop.call_later(_COLLECT_SECONDS, self._on_schedule)

    def _make_calls(self) -> None:
        while self._calls:
            self._calls.popleft()()
