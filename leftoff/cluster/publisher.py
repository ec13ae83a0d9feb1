"""Tells routers of this replica: a heartbeat every second, and what it keeps and drops. See `replica.py`."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, cast

from msgspec.structs import replace

from leftoff.cluster.observe import Observation, held_by
from leftoff.cluster.replica import (
    EXPIRY_S,
    HEARTBEAT_S,
    MAX_DELTAS,
    MODEL_S,
    Delta,
    Heartbeats,
    Held,
    Replica,
    ReplicaState,
    encode,
)
from leftoff.store.fleet_key import FleetKey
from leftoff.store.index import INDEX_PROBLEMS
from leftoff.store.keys import MODELS, NUMBER, REPLICAS, SECRET, replica_key
from leftoff.store.link import Link

logger = logging.getLogger("leftoff.store")

_HELD_EXPIRY_S = 60  # after which what a replica held is forgotten, if it tells nothing more
_FORGOTTEN_S = 3600  # after so long without a heartbeat an id is dropped from the list
_LOOK_EVERY = 5  # heartbeats between two looks at the others in the fleet
_OBSERVE_S = 0.5  # a long step of the engine must not hold up the heartbeat


class Publisher:
    """Belongs to the loop of the link. `observe` asks the engine's thread, and takes the generation that is known."""

    def __init__(
        self,
        link: Link,
        replica: Replica,
        secret: bytes,
        observe: Callable[[int], "Future[Observation]"],
        *,
        has_pages: bool,
        key: FleetKey | None = None,
        unopened: Callable[[], Sequence[Replica]] = tuple,
    ) -> None:
        """`replica` has the facts that do not change while it runs. Those that are `unopened` are told of with it."""
        self._unopened = unopened
        self._others: set[str] = set()  # the ids of the unopened that were told of
        self._key = key
        self._heartbeats = Heartbeats(key)
        self._link = link
        self._replica = replica
        self._secret = secret
        self._observe = observe
        self._has_pages = has_pages
        self._asked: Future[Observation] | None = None
        self._last: Observation | None = None
        self._told: dict[bytes, Held] = {}
        self._has_beaten = False
        self._strangers: set[str] = set()  # replicas that were reported to share nothing

    async def run(self) -> None:
        """Runs until it is cancelled."""
        beat = 0
        while True:
            with suppress(*INDEX_PROBLEMS), self._link.index_breaker.watching(*INDEX_PROBLEMS):  # the breaker tells
                await self.beat()
                if beat % _LOOK_EVERY == 0:
                    await self._look_at_others()
            beat += 1
            await asyncio.sleep(HEARTBEAT_S)

    async def beat(self) -> None:
        """One heartbeat, and before it what has changed."""
        observation = await self._observed()
        if observation is not None:
            if self._last is None or observation.generation != self._last.generation:
                held = await asyncio.to_thread(held_by, observation, self._has_pages)
                await self._tell(held)
            self._last = observation
            self._replica = replace(
                self._replica,
                load=observation.load,
                rates=observation.rates,
                readiness=observation.readiness,
                num_observed=self._replica.num_observed + 1,
            )
        await self._send()

    async def drain(self) -> None:
        """Says that no new requests are wanted."""
        self._replica = replace(self._replica, state=ReplicaState.DRAINING)
        await self._send()

    async def leave(self) -> None:
        """Takes this replica out of the fleet."""
        async with self._link.index.redis.pipeline(transaction=True) as pipe:
            ids = [self._replica.id, *self._others]
            pipe.delete(*map(replica_key, ids), self._link.index.keys.held(self._replica.id))
            pipe.zrem(REPLICAS, *ids)
            await pipe.execute()

    async def _observed(self) -> Observation | None:
        """An answer of the engine's thread; None while that is busy: it then comes with a later heartbeat."""
        if self._asked is None:
            self._asked = self._observe(self._last.generation if self._last is not None else -1)
        try:
            async with asyncio.timeout(_OBSERVE_S):
                answer = await asyncio.shield(asyncio.wrap_future(self._asked))
        except TimeoutError:
            return None
        self._asked = None
        return answer

    async def _tell(self, held: dict[bytes, Held]) -> None:
        kept = [each for tag, each in held.items() if self._told.get(tag) != each]
        dropped = [tag for tag in self._told if tag not in held]
        if not kept and not dropped:
            return
        is_sequel = await self._send_delta(kept, dropped, is_whole=False)
        self._told = held
        if not is_sequel:
            await self._send_delta([*held.values()], [], is_whole=True)

    async def _send_delta(self, kept: list[Held], dropped: list[bytes], *, is_whole: bool) -> bool:
        """False if the index lacks the delta before this one: it has lost what was told."""
        keys, replica = self._link.index.keys, self._replica
        delta = Delta(replica.number + 1, kept, dropped, is_whole)
        mine: Any = keys.held(replica.id)
        async with self._link.index.redis.pipeline(transaction=True) as pipe:
            pipe.hget(mine, cast(str, NUMBER))
            if is_whole:
                pipe.delete(mine)
            fields: dict[Any, Any] = {each.tag: encode(each) for each in kept}
            pipe.hset(mine, mapping={**fields, NUMBER: delta.number})
            if dropped:
                pipe.hdel(mine, *dropped)
            pipe.expire(mine, _HELD_EXPIRY_S)
            entry: dict[Any, Any] = {b"replica": replica.id, b"delta": encode(delta)}
            pipe.xadd(keys.deltas, entry, maxlen=MAX_DELTAS, approximate=True)
            before, *_ = await pipe.execute()
        self._replica = replace(self._replica, number=delta.number)
        return int(before or 0) == delta.number - 1

    async def _send(self) -> None:
        """The heartbeat itself, once the engine has been asked for the first time."""
        if self._last is None:
            return
        replica, redis = self._replica, self._link.index.redis
        others = [replace(each, state=replica.state, num_observed=replica.num_observed) for each in self._unopened()]
        self._others = {each.id for each in others}
        now = await self._link.index.now()
        async with redis.pipeline(transaction=False) as pipe:
            for each in (replica, *others):
                pipe.set(replica_key(each.id), self._heartbeats.encoded(each, now), px=int(1000 * EXPIRY_S))
                pipe.zadd(REPLICAS, {each.id: now})
                pipe.zadd(MODELS, dict.fromkeys((each.model, *each.aliases), now))
            pipe.zremrangebyscore(REPLICAS, "-inf", now - _FORGOTTEN_S)
            pipe.zremrangebyscore(MODELS, "-inf", now - MODEL_S)
            if self._key is None:
                pipe.set(SECRET, self._secret, nx=True)
            pipe.expire(self._link.index.keys.held(replica.id), _HELD_EXPIRY_S)
            _, is_new, *_, is_there = await pipe.execute()
        if is_new and self._has_beaten:
            self._link.index_breaker.came_back()
        self._has_beaten = True
        if not is_there and self._told:  # the index has forgotten it, or was down for long
            await self._send_delta([*self._told.values()], [], is_whole=True)

    async def _look_at_others(self) -> None:
        """Says once of each replica of this model, but of another fingerprint, that it shares nothing with this one."""
        own = self._replica
        for other in await self._heartbeats.read(self._link.index.redis):
            is_stranger = other.model == own.model and other.fingerprint not in ("", own.fingerprint)
            if is_stranger and other.id not in self._strangers:
                self._strangers.add(other.id)
                logger.warning(
                    "the server at %s shares nothing with this one: it has %s, and this one has %s",
                    *(other.url, other.described, own.described),
                )
