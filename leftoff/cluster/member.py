"""This process as a member of a fleet: all that `--store` and `--index` bring, opened and closed in one place."""

import logging
import secrets
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from leftoff import __version__
from leftoff.blobs.replies import MediumReplies, ReplyChain
from leftoff.cache.blob_tier import TierSettings
from leftoff.cluster.observe import Observation, observe
from leftoff.cluster.publisher import Publisher
from leftoff.cluster.replica import Replica
from leftoff.disk.secret import SECRET_BYTES
from leftoff.engine.memory.arena import Arena
from leftoff.engine.memory.base import Memory
from leftoff.scheduler.scheduler import Scheduler
from leftoff.store.collector import Collector
from leftoff.store.keys import SECRET
from leftoff.store.link import PROBLEMS, Link
from leftoff.store.medium import open_store
from leftoff.store.objects import MissingError
from leftoff.store.prober import Prober
from leftoff.store.replies import open_index_replies
from leftoff.store.tools import ABOUT

logger = logging.getLogger("leftoff.store")

_SECRET = "secret"
_START_S = 3.0  # for a part to answer at start; afterwards nobody waits for one
_LEAVE_S = 1.0


class FleetMember:
    """This server in its fleet. `join` comes first, once the engine is loaded and its fingerprint known."""

    link: Link
    _prober: Prober
    _memory: Memory
    _described: str

    def __init__(self, store_url: str, index_url: str, *, budget_bytes: int, days: int) -> None:
        self._urls = store_url, index_url
        self._budget_bytes = budget_bytes
        self._days = days
        self.id = secrets.token_hex(8)
        self._publisher: Publisher | None = None
        self._replies: MediumReplies | None = None

    def join(self, memory: Memory, described: str) -> None:
        """Connects. A part that does not answer is tried again later."""
        self._memory = memory
        self._described = described
        self.link = Link(*self._urls, memory.fingerprint, days=self._days)
        self._prober = Prober(self.link)
        self.link.start(self._prober.run())
        if self.link.has_store:
            self.link.start(Collector(self.link, self._budget_bytes).run())

    def open_store(self, arena: Arena, *, queue_bytes: int, view_bytes: int) -> TierSettings | None:
        """The shared tier, if there is a store."""
        if not self.link.has_store:
            return None
        try:
            self.link.call(self._introduce()).result(_START_S)
        except (*PROBLEMS, TimeoutError) as error:
            self.link.reads.failed(error)
        memory = self._memory
        blobs = open_store(
            *(self.link, self._prober, memory.fingerprint, arena, memory.kind),
            queue_bytes=queue_bytes,
            window_tokens=memory.window_tokens,
        )
        return TierSettings(blobs, view_bytes)

    def secret(self, own: bytes) -> bytes:
        """The secret of the fleet, so that tenants have the same names on all machines. The first one gives its own."""
        try:
            return self.link.call(self._shared_secret(own)).result(_START_S)
        except (*PROBLEMS, TimeoutError) as error:
            logger.warning("no secret of the fleet (%s): what it keeps for API keys and salts is not found", error)
            return own

    def replies(self, own: MediumReplies | None) -> ReplyChain:
        """Remembered replies of the fleet, and before them those of this machine."""
        self._replies = open_index_replies(self.link, self._memory.fingerprint, days=self._days)
        return ReplyChain([own, self._replies] if own is not None else [self._replies])

    def announce(
        self,
        url: str,
        model: str,
        secret: bytes,
        call: Callable[[Callable[[], Observation]], "Future[Observation]"],
        scheduler: Scheduler,
    ) -> None:
        """Begins to tell routers of this replica. `call` runs a function on the engine's thread."""
        memory, has_store = self._memory, self.link.has_store
        replica = Replica(self.id, url, memory.fingerprint, model, self._described, __version__, has_store=has_store)
        ask = lambda generation: call(partial(observe, scheduler, generation))  # noqa: E731
        self._publisher = Publisher(self.link, replica, secret, ask, has_pages=memory.kind.has_pages)
        self.link.start(self._publisher.run())

    def drain(self) -> None:
        """Tells routers to send no more requests."""
        if self._publisher is not None:
            self.link.call(self._publisher.drain())

    def close(self) -> None:
        if self._publisher is not None:
            try:
                self.link.call(self._publisher.leave()).result(_LEAVE_S)
            except (*PROBLEMS, TimeoutError):
                pass  # the heartbeat expires
        if self._replies is not None:
            self._replies.close()
        self.link.close()

    async def _introduce(self) -> None:
        """Says in the store what the fingerprint stands for, and measures how fast it answers."""
        await self.link.objects.put_if_absent(
            f"{self.link.group}/{ABOUT}", f"{self._memory.fingerprint}\n{self._described}\n".encode()
        )
        for _ in range(2):  # the first may have to put what the second fetches
            await self._prober.measure_store()

    async def _shared_secret(self, own: bytes) -> bytes:
        """The secret is kept in the store, which outlives the index; without a store, in the index."""
        if not self.link.has_store:
            return await self._index_secret(own)
        try:
            secret = bytes((await self.link.objects.get(_SECRET)).data)
        except MissingError:
            await self.link.objects.put_if_absent(_SECRET, own)
            secret = bytes((await self.link.objects.get(_SECRET)).data)
        return secret if len(secret) == SECRET_BYTES else own

    async def _index_secret(self, own: bytes) -> bytes:
        await self.link.index.redis.set(SECRET, own, nx=True)
        secret = await self.link.index.redis.get(SECRET)
        return bytes(secret) if isinstance(secret, bytes) and len(secret) == SECRET_BYTES else own
