"""Tells routers of this replica: a heartbeat every second, and what it keeps and drops. See `replica.py`."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, cast

from leftoff.store.index import INDEX_PROBLEMS, heartbeats
from leftoff.store.keys import NUMBER, REPLICAS, SECRET, replica_key
from leftoff.store.link import Link
from leftoff.store.observe import Observation, held_by
from leftoff.store.replica import (
    EXPIRY_S,
    HEARTBEAT_S,
    MOST_DELTAS,
    Delta,
    Held,
    Replica,
    ReplicaState,
    encode,
)

logger = logging.getLogger("leftoff.store")

_HELD_EXPIRY_S = 60
_FORGOTTEN_S = 3600  # after so long without a heartbeat an id is dropped from the list
_LOOK_EVERY = 5  # heartbeats: at the others in the fleet
_OBSERVE_S = 0.5  # a long step of the engine must not hold up the heartbeat


@dataclass(frozen=True)
class Identity:
    """The facts about a replica that do not change while it runs."""

    id: str
    url: str
    fingerprint: str
    model: str
    described: str
    version: str
    secret: bytes
    has_pages: bool


class Publisher:
    """Belongs to the loop of the link. `observe` asks the engine's thread, and takes the generation that is known."""

    def __init__(self, link: Link, identity: Identity, observe: Callable[[int], "Future[Observation]"]) -> None:
        self._link = link
        self._identity = identity
        self._observe = observe
        self._state = ReplicaState.READY
        self._asked: Future[Observation] | None = None
        self._last: Observation | None = None
        self._told: dict[bytes, Held] = {}
        self._number = 0
        self._strangers: set[str] = set()  # replicas that were reported to share nothing

    async def run(self) -> None:
        """Runs until it is cancelled."""
        beat = 0
        while True:
            try:
                with self._link.index_breaker.watching(*INDEX_PROBLEMS):
                    await self.beat()
                    if beat % _LOOK_EVERY == 0:
                        await self._look_at_others()
            except INDEX_PROBLEMS:
                pass  # the breaker has told
            beat += 1
            await asyncio.sleep(HEARTBEAT_S)

    async def beat(self) -> None:
        """One heartbeat, and before it what has changed."""
        observation = await self._observed()
        if observation is not None:
            if self._last is None or observation.generation != self._last.generation:
                held = await asyncio.to_thread(held_by, observation, self._identity.has_pages)
                await self._tell(held)
            self._last = observation
        if self._last is not None:
            await self._send(self._last)

    async def drain(self) -> None:
        """Says that no new requests are wanted."""
        self._state = ReplicaState.DRAINING
        if self._last is not None:
            await self._send(self._last)

    async def leave(self) -> None:
        """Takes this replica out of the fleet."""
        async with self._link.index.redis.pipeline(transaction=True) as pipe:
            pipe.delete(replica_key(self._identity.id), self._link.index.keys.held(self._identity.id))
            pipe.zrem(REPLICAS, self._identity.id)
            await pipe.execute()

    async def _observed(self) -> Observation | None:
        """None while the engine's thread is busy; its answer then comes with a later heartbeat."""
        if self._asked is None:
            self._asked = self._observe(self._last.generation if self._last is not None else -1)
        try:
            answer = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(self._asked)), _OBSERVE_S)
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
        keys, identity = self._link.index.keys, self._identity
        delta = Delta(self._number + 1, kept, dropped, is_whole)
        mine: Any = keys.held(identity.id)
        async with self._link.index.redis.pipeline(transaction=True) as pipe:
            pipe.hget(mine, cast(str, NUMBER))
            if is_whole:
                pipe.delete(mine)
            fields: dict[Any, Any] = {each.tag: encode(each) for each in kept}
            pipe.hset(mine, mapping={**fields, NUMBER: delta.number})
            if dropped:
                pipe.hdel(mine, *dropped)
            pipe.expire(mine, _HELD_EXPIRY_S)
            entry: dict[Any, Any] = {b"replica": identity.id, b"delta": encode(delta)}
            pipe.xadd(keys.deltas, entry, maxlen=MOST_DELTAS, approximate=True)
            before, *_ = await pipe.execute()
        self._number += 1
        return int(before or 0) == delta.number - 1

    async def _send(self, observation: Observation) -> None:
        identity, redis = self._identity, self._link.index.redis
        beat = Replica(
            id=identity.id,
            url=identity.url,
            fingerprint=identity.fingerprint,
            model=identity.model,
            described=identity.described,
            version=identity.version,
            state=self._state,
            number=self._number,
            load=observation.load,
            rates=observation.rates,
            has_store=self._link.has_store,
        )
        now = await self._link.index.now()
        async with redis.pipeline(transaction=False) as pipe:
            pipe.set(replica_key(identity.id), encode(beat), px=int(1000 * EXPIRY_S))
            pipe.zadd(REPLICAS, {identity.id: now})
            pipe.zremrangebyscore(REPLICAS, "-inf", now - _FORGOTTEN_S)
            pipe.set(SECRET, identity.secret, nx=True)
            pipe.expire(self._link.index.keys.held(identity.id), _HELD_EXPIRY_S)
            *_, is_there = await pipe.execute()
        if not is_there and self._told:  # the index has forgotten it, or was down for long
            await self._send_delta([*self._told.values()], [], is_whole=True)

    async def _look_at_others(self) -> None:
        """Says once of each replica of another fingerprint that it shares nothing with this one."""
        identity = self._identity
        for other in await heartbeats(self._link.index.redis):
            if other.fingerprint != identity.fingerprint and other.id not in self._strangers:
                self._strangers.add(other.id)
                logger.warning(
                    "the server at %s shares nothing with this one: it has %s, and this one has %s",
                    *(other.url, other.described, identity.described),
                )
