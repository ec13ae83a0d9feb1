"""All that belongs to one loaded model: its engine and cache, the engine's thread, prompts, grammars and replies.

A host is opened and closed as one thing: nobody else keeps a model, an engine or a cache. It knows neither HTTP nor a
wire format. The server answers requests with hosts, and a `Session` is a host for one program.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from leftoff.adapters import without_adapters
from leftoff.cache.cache import Cache
from leftoff.chat.chat import Chat, ChatPrompt
from leftoff.chat.header_rules import Rules
from leftoff.chat.learner import Learner
from leftoff.chat.prompts import PromptMaker
from leftoff.chat.replies import RememberedReplies
from leftoff.chat.work import Lanes
from leftoff.config import LEARN, Settings
from leftoff.engine.embedder import Embedder, Pooling
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.model import Model
from leftoff.errors import LeftoffError
from leftoff.grammar.compile import Grammars
from leftoff.grammar.constraint import Trigger
from leftoff.host.adapters import HostAdapters, Scales
from leftoff.host.embeddings import Embeddings
from leftoff.host.fleet import Fleet, Place
from leftoff.host.header_file import HeaderFile, is_header_meant, last_headers
from leftoff.host.kept import header_files, learned_files, own_secret, reply_store
from leftoff.host.pictures import open_encoder
from leftoff.host.request_log import RequestLog
from leftoff.host.slot_files import SlotFiles
from leftoff.hub.reference import shown_name
from leftoff.lru import LruCache
from leftoff.pdf import Documents
from leftoff.picture import Pictures
from leftoff.sampling import recommended
from leftoff.scheduler.scheduler import Scheduler
from leftoff.scheduler.worker import Worker
from leftoff.setting import template_values
from leftoff.types import owner_of

LOADING = "loading"

Result = TypeVar("Result")
MakeScheduler = Callable[[Model], Scheduler]

_TRIGGER_BYTES = 16 << 20  # of the grammars of tools
_LONG_HEADER = 256  # tokens: fewer are read at once


class HostClosedError(LeftoffError):
    """The engine's thread has ended, or is ending."""


class ModelHost:
    """Owns the model, the engine's thread and the threads for texts. Any thread may call it.

    Engine, cache and scheduler belong to the engine's thread: use them in `call` or `between_steps`.
    """

    def __init__(
        self,
        model: Model,
        make: MakeScheduler,
        settings: Settings | None = None,
        *,
        has_thread: bool = True,
        fleet: Fleet | None = None,
        log: RequestLog | None = None,
        sampling: dict[str, Any] | None = None,
        fit_line: str = "",
        chosen: frozenset[str] = frozenset(),
    ) -> None:
        """`make` gives the model an engine, a cache and a scheduler: on the engine's thread, or here without one.

        `sampling` replaces what the model recommends. The log outlives the host: all hosts of a server write to one.
        """
        self.settings = settings = settings or Settings()
        self.fit_line = fit_line  # what `--fit` has chosen
        self.chosen = chosen  # the names of the settings that it has chosen
        self.model = model
        self.name = shown_name(settings.alias, model.path)
        self.num_forgets = 0  # who prepares something of a conversation for later sees whether it was deleted meanwhile
        self.log = log or RequestLog(settings.reports)
        self.default_sampling = replace(recommended(model.metadata), **(sampling or {}))
        with ExitStack() as opened:
            opened.callback(model.close)
            if fleet is not None:
                opened.callback(fleet.close)
            self._worker = Worker(partial(make, model)) if has_thread else None
            self.scheduler = make(model) if self._worker is None else self._worker.scheduler
            opened.callback(self.engine.close)
            opened.callback(self.stop)
            self._open(settings, fleet)
            opened.pop_all()

    def _open(self, settings: Settings, fleet: Fleet | None) -> None:
        own = own_secret(settings)
        self.fleet = fleet
        self.secret = fleet.secret(own) if fleet is not None else own
        template = Path(settings.chat_template_file).read_text("utf-8") if settings.chat_template_file else None
        self.adapters = HostAdapters((self.name, *settings.alias), settings, self.engine.settings.loras)
        options = template_values(settings.chat_template_kwargs)
        self.prompts = PromptMaker(self.model, template, options=options, context_tokens=self.context_tokens)
        # from here on there are threads and files that `close` alone ends: what may be refused is made before
        self.prompts.encoder = open_encoder(self.engine, settings, self.cache)
        self._reply_store = reply_store(settings, self.cache)
        self.headers = header_files(settings)
        replies = fleet.replies(self._reply_store) if fleet is not None else self._reply_store
        is_sound = lambda written: self.prompts.is_reply(written.tokens, written.text)  # noqa: E731
        self.remembered = RememberedReplies(replies, is_sound=is_sound) if settings.remember_replies else None
        self.slot_files = SlotFiles(self._reply_store)
        rules = (settings.drop_header, settings.pin, tuple(word for word in settings.move if word != LEARN))
        self.chats = Chat(
            self.prompts,
            self.context_tokens,
            rules=Rules(*rules),
            learner=self._learner(settings),
            overflow="cut" if settings.overflow == "cut" else "error",
            remembered=self.remembered,
        )
        self.embeddings = Embeddings(self._embedder, self.scheduler.waking.errands.add)
        self.grammars = Grammars(self.model.vocabulary)
        self.call_triggers: LruCache[bytes, tuple[Trigger, ...]] = LruCache(
            max_bytes=_TRIGGER_BYTES, size_of=lambda _, triggers: sum(len(trigger.grammar.lark) for trigger in triggers)
        )
        self.lanes = Lanes()
        self.pictures = Pictures(max_megapixels=settings.image_megapixels)
        self.documents = Documents()

    def _learner(self, settings: Settings) -> Learner | None:
        """Learns moves from headers; if that is off, it only says where it would help. None without `--move`."""
        if not settings.move:
            return None
        learner = Learner(learned_files(settings), is_on=LEARN in settings.move)
        for file in reversed(last_headers(self.headers)):
            learner.remember(file.conversation())
        return learner

    def close(self) -> None:
        self.lanes.close()
        self.stop()
        if self.fleet is not None:
            self.fleet.close()
        if self._reply_store is not None:
            self._reply_store.close()
        self.grammars.close()
        if self.prompts.encoder is not None:
            self.prompts.encoder.close()
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def engine(self) -> LlamaEngine:
        return self.scheduler.engine

    def _embedder(self) -> Embedder:
        return self.engine.embedder(Pooling.of(self.settings.pooling))

    @property
    def cache(self) -> Cache:
        return self.scheduler.cache

    @property
    def context_tokens(self) -> int:
        return self.engine.memory.num_cells

    def name_for(self, model: str | None, scales: Scales | None = None) -> str:
        """The name in replies to a request for this model: its own, with the adapter that is asked for."""
        adapter = self.adapters.shown(model, scales)
        return f"{self.name}:{adapter.name}" if adapter is not None else self.name

    @property
    def status(self) -> str:
        """The model's state, in llama-server's words. While it is being loaded, its thread may answer nobody."""
        if not self.engine.is_asleep:
            return "loaded"
        return LOADING if self.scheduler.num_waiting or self.scheduler.waking.errands else "sleeping"

    # --- the engine's thread

    @property
    def is_alive(self) -> bool:
        return self._worker is not None and self._worker.is_alive

    def require_alive(self) -> None:
        """Raises `HostClosedError` if the engine's thread has ended."""
        if not self.is_alive:
            raise HostClosedError(f"{self.name} is being closed: try again later")

    def stop(self) -> None:
        """Ends the engine's thread: what runs is cancelled, and nothing more is accepted."""
        if self._worker is not None:
            self._worker.stop()

    def rest(self) -> "Future[None]":
        """Lets the model sleep, if it may, as soon as it has nothing to do."""

        def sleep() -> None:
            if self.model.may_sleep:
                self.scheduler.gate.keep(0)
                if not self.scheduler.is_busy:
                    self.scheduler.tidy()

        return self.call(sleep)

    def call(self, function: Callable[[], Result]) -> "Future[Result]":
        """Runs a function on the engine's thread between two steps, where engine and cache may be inspected."""
        self.require_alive()
        assert self._worker is not None
        return self._worker.call(function)

    async def between_steps(self, function: Callable[[], Result]) -> Result:
        """Does what `call` does, awaited on an event loop."""
        return await asyncio.wrap_future(self.call(function))

    # --- the fleet, if there is one

    def announce(self, place: Place) -> None:
        """Tells where this host answers, and from then on what it holds."""
        if self.fleet is not None and self._worker is not None:
            self.fleet.announce(place, self.name, self.secret, self._worker.call, self.scheduler)

    def drain(self) -> None:
        """Tells that no more requests are wanted."""
        if self.fleet is not None:
            self.fleet.drain()

    # --- what is known of conversations

    def learn_header(self, chat: ChatPrompt) -> None:
        """Keeps the header of a chat on disk if it is long, in the form of a file for `--prewarm`."""
        asked = chat.conversation
        namespace = without_adapters(asked.namespace)
        if asked.namespace != self.adapters.asked(None).namespace(namespace):
            return  # it would be prewarmed with others
        if self.headers is None or (chat.prompt.header_end or 0) < _LONG_HEADER:
            return
        header = HeaderFile(chat.header, asked.tools, asked.options, namespace)
        self.headers.put(owner_of(namespace), msgspec.json.encode(header))

    def forget(self, is_meant: Callable[[str], bool]) -> list[Future[None]]:
        """Deletes all that is kept for the namespaces that are meant. On the engine's thread.

        The futures are of what lies on disks and other machines; they raise where something cannot be deleted.
        """
        self.num_forgets += 1
        self.scheduler.forget_ahead(is_meant)
        deleted = self.cache.clear(is_meant)
        self.slot_files.remove(is_meant)
        self.chats.forget(is_meant)
        self.embeddings.forget(is_meant)
        self.pictures.forget()
        self.documents.forget()
        if self.prompts.encoder is not None:
            self.prompts.encoder.kept.remove(is_meant)
        if self.remembered is not None:
            deleted += self.remembered.remove(is_meant)
        elif self._reply_store is not None:
            deleted += self._reply_store.remove(is_meant)
        if self.scheduler.drafter is not None:
            self.scheduler.drafter.forget(is_meant)
        return deleted

    def forget_headers(self, is_meant: Callable[[str], bool]) -> None:
        """Deletes the headers that are kept on disk for the namespaces that are meant. Blocks."""
        if self.headers is not None:
            self.headers.remove(partial(is_header_meant, is_meant))
