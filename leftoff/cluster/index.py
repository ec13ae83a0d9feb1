"""Follows the index: heartbeats, what replicas keep and drop, what the store has, and what other routers have learnt.

When the index cannot be reached, or takes no heartbeats because it is full, what was known last is used on, and it is
tried again every second: a router without an index routes worse, and nothing else.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import MsgspecError

from leftoff.cluster.fleet import Fleet
from leftoff.cluster.replica import Heartbeats, decode_delta, decode_held, models
from leftoff.cluster.replica_view import ReplicaView
from leftoff.setting import is_loopback
from leftoff.store.fleet_key import FleetKey
from leftoff.store.index import INDEX_PROBLEMS, check_writes, connect
from leftoff.store.keys import NUMBER, Keys

logger = logging.getLogger("leftoff.route")

_BEAT_S = 0.5
_GAP_S = 2.0  # without heartbeats read: the index was away, and silence of replicas meanwhile says nothing
_RETRY_S = 1.0
_BLOCK_MS = 500
_PATIENCE_S = 0.05  # how long a request waits for the index
_DAY_S = 86_400
_MAX_DELTAS = 500  # in one answer of the index
_WAY_OUT = "start it with --advertise and a URL that this one reaches"
_LATE_BEATS = 4  # after so many heartbeats in a row that name a delta which has not come, it counts as lost


class IndexFollower:
    """Keeps a `Fleet` up to date. Implements `memory.Shared`."""

    def __init__(
        self,
        url: str,
        fleet: Fleet,
        key: FleetKey | None = None,
        connect_index: Callable[..., Any] = connect,
        *,
        beat_s: float = _BEAT_S,
        retry_s: float = _RETRY_S,
    ) -> None:
        """Heartbeats are read every `beat_s`; an index that does not answer is tried again after `retry_s`."""
        self._beat_s, self._retry_s = beat_s, retry_s
        self._heartbeats = Heartbeats(key)
        self._redis = connect_index(url, protocol=2, socket_connect_timeout=2, socket_timeout=5)
        self._is_local = is_loopback(url)
        self._unreachable: set[str] = set()  # replicas whose URL is good for their own machine alone
        self._fleet = fleet
        self._tasks: set[asyncio.Task[None]] = set()
        self._last_ids: dict[bytes, bytes] = {}  # the last entry read, by stream of deltas
        self.is_reachable = True
        self._read_at = self._read_since = float("-inf")  # heartbeats: the last time, and the first without a gap
        self._is_closed = False

    def start(self) -> None:
        for loop in (self._follow_heartbeats, self._follow_deltas):
            self._spawn(self._always(loop))

    async def close(self) -> None:
        self._is_closed = True  # a call of the client that ends just now may swallow the cancellation
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(*INDEX_PROBLEMS):
            await self._redis.aclose()

    def _spawn(self, work: Any) -> None:  # noqa: ANN401
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _always(self, step: Any) -> None:  # noqa: ANN401
        while not self._is_closed:
            try:
                await check_writes(self._redis)
                await step()
                self._note(True)
            except INDEX_PROBLEMS as error:
                self._note(False, error)
                await asyncio.sleep(self._retry_s)
            except Exception:  # a value that nobody foresaw must not end the following
                logger.exception("the index holds something unexpected")
                await asyncio.sleep(self._retry_s)

    def _note(self, is_reachable: bool, error: BaseException | None = None) -> None:
        if is_reachable != self.is_reachable:
            self.is_reachable = is_reachable
            state = "is back" if is_reachable else f"fails ({error}): going on by what was known last"
            logger.warning("the index %s", state)

    # --- heartbeats

    async def _follow_heartbeats(self) -> None:
        for name in await models(self._redis):
            self._fleet.saw_model(name)
        for told in await self._heartbeats.read(self._redis):
            if self._is_local or not is_loopback(told.url):
                self._take(self._fleet.beat(told))
            elif told.id not in self._unreachable:
                self._unreachable.add(told.id)
                logger.warning(
                    "replica %s is left out: from here %s is another machine: %s", told.id, told.url, _WAY_OUT
                )
        for view in self._fleet.expire(self._read_without_gap()):
            logger.warning("replica %s at %s is gone: no heartbeat", view.id, view.told.url)
        await asyncio.sleep(self._beat_s)

    def _read_without_gap(self) -> float:
        """Reads the clock; returns since when heartbeats have been read without a gap.

        An index that was away has let heartbeats expire: replicas get their time to send new ones.
        """
        before, self._read_at = self._read_at, self._fleet.clock()
        if self._read_at - before > _GAP_S:
            self._read_since = self._read_at
        return self._read_since

    def _take(self, view: ReplicaView) -> None:
        view.num_late = view.num_late + 1 if view.number is None or view.number < view.told.number else 0
        if view.number is None or view.num_late >= _LATE_BEATS:
            view.num_late = 0
            self._spawn(self._resync(view))

    async def _resync(self, view: ReplicaView) -> None:
        """Reads all that a replica holds. The place in the stream is noted before, so that no later delta is missed."""
        with suppress(*INDEX_PROBLEMS):
            await self._begin_stream(Keys(view.told.fingerprint).deltas)
            fields = await self._redis.hgetall(Keys(view.told.fingerprint).held(view.id))
            number = int(fields.pop(NUMBER, 0))
            with suppress(MsgspecError):
                view.replace_held(map(decode_held, fields.values()), number)

    # --- deltas

    async def _follow_deltas(self) -> None:
        keys = [Keys(fingerprint).deltas for fingerprint in self._fleet.groups if fingerprint]
        if not keys:
            await self._redis.ping()
            await asyncio.sleep(self._beat_s)
            return
        for key in keys:
            await self._begin_stream(key)
        streams = {key: self._last_ids[key] for key in keys}
        for key, entries in await self._redis.xread(streams, count=_MAX_DELTAS, block=_BLOCK_MS) or ():
            for entry_id, fields in entries:
                self._last_ids[key] = entry_id
                self._apply(fields)

    async def _begin_stream(self, key: bytes) -> None:
        if key not in self._last_ids:
            latest = await self._redis.xrevrange(key, count=1)
            self._last_ids.setdefault(key, latest[0][0] if latest else b"0-0")

    def _apply(self, fields: Mapping[bytes, bytes]) -> None:
        view = self._fleet.views.get(fields.get(b"replica", b"").decode())
        if view is not None and view.number is not None:
            with suppress(MsgspecError):
                if not view.apply(decode_delta(fields[b"delta"])):
                    self._spawn(self._resync(view))

    # --- the store

    async def stored(self, fingerprint: str, tags: Sequence[bytes]) -> list[bytes]:
        """The tags for which the store has a page or snapshot. Empty if the index does not answer in time."""
        if not self.is_reachable or not tags:
            return []
        keys = Keys(fingerprint)
        with suppress(*INDEX_PROBLEMS):
            async with asyncio.timeout(_PATIENCE_S), self._redis.pipeline(transaction=False) as pipeline:
                for tag in tags:
                    pipeline.exists(keys.at(tag))
                found = await pipeline.execute()
            return [tag for tag, is_there in zip(tags, found, strict=True) if is_there]
        return []

    # --- memory.Shared

    async def find(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        if not self.is_reachable or not keys:
            return {}
        with suppress(*INDEX_PROBLEMS):
            async with asyncio.timeout(_PATIENCE_S):
                values = await self._redis.mget([_route_key(key) for key in keys])
            return {key: value for key, value in zip(keys, values, strict=True) if value}
        return {}

    def put(self, values: Mapping[bytes, bytes]) -> None:
        if self.is_reachable:
            self._spawn(self._put(values))

    async def _put(self, values: Mapping[bytes, bytes]) -> None:
        with suppress(*INDEX_PROBLEMS):
            async with self._redis.pipeline(transaction=False) as pipeline:
                for key, value in values.items():
                    pipeline.set(_route_key(key), value, ex=_DAY_S)
                await pipeline.execute()


def _route_key(key: bytes) -> bytes:
    return b"leftoff:route:" + key
