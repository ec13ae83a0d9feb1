"""This process as a member of a fleet: all that `--store` and `--index` bring, opened and closed in one place."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path

import msgspec

from leftoff.blobs.replies import MediumReplies, ReplyChain
from leftoff.cache.blob_tier import TierSettings
from leftoff.cluster.observe import Observation, observe
from leftoff.cluster.publisher import Publisher
from leftoff.cluster.replica import HEARTBEAT_S, Replica
from leftoff.disk.secret import SECRET_BYTES
from leftoff.disk.tools.models import Pruned
from leftoff.engine.fingerprint import file_fingerprint
from leftoff.engine.memory.arena import Arena
from leftoff.engine.memory.base import Memory
from leftoff.host.fleet import Place, model_label
from leftoff.scheduler.scheduler import Scheduler
from leftoff.store.collector import Collector
from leftoff.store.fleet_key import NO_KEY, FleetKey
from leftoff.store.keys import SECRET
from leftoff.store.link import PROBLEMS, Link
from leftoff.store.medium import open_store
from leftoff.store.namespaces import clear_namespaces
from leftoff.store.objects import MissingError
from leftoff.store.prober import Prober
from leftoff.store.replies import IndexReplies, open_index_replies
from leftoff.store.tools import ABOUT, NO_GROUP, About, groups_about

logger = logging.getLogger("leftoff.store")

_SECRET = "secret"
_START_S = 3.0  # for a part to answer at start; afterwards nobody waits for one
_LEAVE_S = 1.0
_FORGET_S = 60.0
_KEEP_S = 10.0  # between two looks whether the fleet still has the secret


class FleetMember:
    """This server in its fleet. `join` comes first, once the engine is loaded and its fingerprint known."""

    link: Link
    _prober: Prober
    _memory: Memory
    _described: str
    _fingerprint: str  # of the model, in this fleet

    def __init__(
        self,
        store_url: str,
        index_url: str,
        *,
        budget_bytes: int,
        days: int,
        key: FleetKey | None = None,
        open_link: Callable[..., Link] = Link,
    ) -> None:
        self._key = key
        self._urls = store_url, index_url
        self._open_link = open_link
        self._budget_bytes = budget_bytes
        self._days = days
        self._publisher: Publisher | None = None
        self._closing = ExitStack()

    def join(self, memory: Memory, described: str) -> None:
        """Connects. A part that does not answer is tried again later."""
        self._memory = memory
        self._described = described
        if self._key is None:
            logger.warning(NO_KEY)
        self._fingerprint = memory.fingerprint if self._key is None else self._key.fingerprint(memory.fingerprint)
        self.link = self._link_to(self._fingerprint)
        self._closing.callback(self.link.close)
        self._prober = Prober(self.link)
        self.link.start(self._prober.run())
        if self.link.has_store:
            self.link.start(Collector(self.link, self._budget_bytes, self._introduce).run())

    def open_store(self, arena: Arena, *, queue_bytes: int, view_bytes: int) -> TierSettings | None:
        """The shared tier, if there is a store."""
        if not self.link.has_store:
            return None
        try:
            self.link.call(self._meet_store()).result(_START_S)
        except (*PROBLEMS, TimeoutError) as error:
            self.link.reads.failed(error)
        memory = self._memory
        blobs = open_store(
            *(self.link, self._prober, self._fingerprint, arena),
            queue_bytes=queue_bytes,
            window_tokens=memory.window_tokens,
            key=self._key,
        )
        return TierSettings(blobs, view_bytes)

    def secret(self, own: bytes) -> bytes:
        """The secret of the fleet, so that tenants have the same names on all machines.

        It comes from the fleet's key; without one, the first server gives its own.
        """
        if self._key is not None:
            return self._key.key("tenants")
        try:
            secret = self.link.call(self._shared_secret(own)).result(_START_S)
        except (*PROBLEMS, TimeoutError) as error:
            logger.warning(
                "no secret of the fleet (%s): what it keeps for API keys and salts is not found before a restart", error
            )
            return own
        self.link.start(self._keep_secret(secret))
        return secret

    def replies(self, own: MediumReplies | None) -> ReplyChain:
        """Remembered replies of the fleet, and before them those of this machine."""
        shared = open_index_replies(self.link, self._fingerprint, days=self._days, key=self._key)
        self._closing.callback(shared.close)
        return ReplyChain([own, shared] if own is not None else [shared])

    def forget(self, model: Path, is_meant: Callable[[str], bool]) -> list[Pruned]:
        """Deletes blobs and remembered replies, of every library and KV type that the model was read with."""
        if not self._urls[0]:
            return []
        with closing(self._link_to(NO_GROUP)) as link:
            groups = link.call(groups_about(link.objects, self._is_about(model))).result(_FORGET_S)
        return [self._forget_in(group, is_meant) for group in groups]

    def _forget_in(self, group: str, is_meant: Callable[[str], bool]) -> Pruned:
        with closing(self._link_to(group)) as link:
            cleared = link.call(clear_namespaces(link, is_meant)).result(_FORGET_S)
            IndexReplies(link, self._days).remove(is_meant)
        return Pruned(cleared.num_blobs, cleared.nbytes, left_bytes=0)

    def _is_about(self, model: Path) -> Callable[[About], bool]:
        """Tells whether a group is about a model: by the content of its file, or by its name if the file is gone."""
        key_id = self._key.id if self._key is not None else ""
        try:
            told = model_label(model, file_fingerprint(model)).removeprefix(model.stem)
        except OSError:
            return lambda about: about.key_id == key_id and about.described.startswith(f"{model.stem} (")
        return lambda about: about.key_id == key_id and f"{told}, " in about.described

    def _link_to(self, fingerprint: str) -> Link:
        return self._open_link(*self._urls, fingerprint, days=self._days)

    def announce(
        self,
        place: Place,
        model: str,
        secret: bytes,
        call: Callable[[Callable[[], Observation]], "Future[Observation]"],
        scheduler: Scheduler,
    ) -> None:
        """Begins to tell routers of this replica. `call` runs a function on the engine's thread."""
        memory, has_store = self._memory, self.link.has_store
        replica = msgspec.structs.replace(
            {each.model: each for each in Replica.all_of(place)}[model],
            fingerprint=self._fingerprint,
            described=self._described,
            has_store=has_store,
        )
        ask = lambda generation: call(partial(observe, scheduler, generation))  # noqa: E731
        has_pages = memory.kind.has_pages
        self._publisher = Publisher(
            *(self.link, replica, secret, ask),
            has_pages=has_pages,
            key=self._key,
            unopened=partial(_unopened, place) if not replica.order else tuple,
        )
        self.link.start(self._publisher.run())

    def reachable(self) -> dict[str, bool]:
        """Whether index and store answer."""
        link = self.link
        store = {"store": not (link.reads.is_failing or link.writes.is_failing)} if link.has_store else {}
        return {"index": not link.index_breaker.is_failing, **store}

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
        self._closing.close()

    async def _meet_store(self) -> None:
        """Says in the store what the fingerprint stands for, and measures how fast it answers."""
        await self._introduce()
        for _ in range(2):  # the first may have to put what the second fetches
            await self._prober.measure_store()

    async def _introduce(self) -> None:
        """Without it, what is stored of a model that is closed could not be deleted."""
        await self.link.objects.put_if_absent(
            f"{self.link.group}/{ABOUT}",
            About(self._fingerprint, self._described, self._key.id if self._key is not None else "").content,
        )

    async def _shared_secret(self, own: bytes) -> bytes:
        """The secret is kept in the store, which outlives the index; without a store, in the index.

        If the store has lost it, the index still has it, since every heartbeat puts it there: also one that has just
        forgotten all, if a fleet runs. Without an answer of the index no secret is made: it may be another one than
        that of servers that run.
        """
        if not self.link.has_store:
            return await self._index_secret(own)
        try:
            secret = bytes((await self.link.objects.get(_SECRET)).data)
        except MissingError:
            if await self.link.objects.groups(self.link.group):  # something was stored: others may run
                await asyncio.sleep(1.5 * HEARTBEAT_S)
            await self.link.objects.put_if_absent(_SECRET, await self._index_secret(own))
            secret = bytes((await self.link.objects.get(_SECRET)).data)
        return secret if len(secret) == SECRET_BYTES else own

    async def _keep_secret(self, secret: bytes) -> None:
        """Puts the secret back if it is lost, and says so if another has taken its place: both name tenants apart."""
        kept = secret
        while kept == secret:
            await asyncio.sleep(_KEEP_S)
            with suppress(*PROBLEMS):
                kept = await self._kept_secret(secret)
        logger.warning(
            "the fleet has another secret than this server: what it keeps for API keys and salts is shared again "
            "after a restart"
        )

    async def _kept_secret(self, secret: bytes) -> bytes:
        if not self.link.has_store:
            return await self._index_secret(secret)
        try:
            self.link.reads.check()
            return bytes((await self.link.objects.get(_SECRET)).data)
        except MissingError:
            await self.link.objects.put_if_absent(_SECRET, secret)
            logger.warning("the store had lost the secret of the fleet: this server has put it back")
            return secret

    async def _index_secret(self, own: bytes) -> bytes:
        await self.link.index.redis.set(SECRET, own, nx=True)
        secret = await self.link.index.redis.get(SECRET)
        return bytes(secret) if isinstance(secret, bytes) and len(secret) == SECRET_BYTES else own


def _unopened(place: Place) -> list[Replica]:
    """The models that nobody has asked, and which have no member of their own: that of the first tells of them."""
    return [replica for replica in Replica.all_of(place) if not replica.readiness.is_open]
