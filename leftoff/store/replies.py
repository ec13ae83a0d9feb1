"""Remembered replies in the index, which machines share: the medium of a `blobs.replies.MediumReplies`.

A conversation that moves to another machine is to be written there with the tokens that the model wrote here: else all
after the first reply would have to be read again.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any

from leftoff.blobs.replies import MediumReplies, Sealed
from leftoff.store.fleet_key import FleetKey
from leftoff.store.index import INDEX_PROBLEMS
from leftoff.store.keys import namespace_hash
from leftoff.store.link import Link

_PATIENCE_S = 0.5
_PUT_S = 5.0
_DAY_MS = 86_400_000
_SCANNED_AT_ONCE = 500
_MAX_PASSES = 10  # over one namespace that others go on to put replies of


def open_index_replies(link: Link, fingerprint: str, *, days: int = 30, key: FleetKey | None = None) -> MediumReplies:
    """The replies of one fingerprint. An index that was restarted is given the latest of them again."""
    mac_key = key.key("replies") if key is not None else None
    replies = MediumReplies(IndexReplies(link, days), fingerprint, link.threads, mac_key)
    link.index_breaker.when_back.append(replies.put_again)
    return replies


class IndexReplies:
    """Implements `blobs.replies.ReplyMedium`. Any thread but that of the link may call it."""

    seal_bytes = 16
    gather_s = 0.0  # the next turn may be on its way to another machine

    def __init__(self, link: Link, days: int) -> None:
        self._link = link
        self._expiry_ms = days * _DAY_MS

    def get(self, keys: Sequence[bytes]) -> Mapping[bytes, Sealed]:
        if self._link.index_breaker.is_failing:
            return {}
        answer = self._link.call(self._get(keys))
        try:
            return answer.result(_PATIENCE_S)
        except (TimeoutError, CancelledError):  # the link may be closed
            answer.cancel()
            return {}

    def put(self, values: Mapping[bytes, Sealed]) -> None:
        answer = self._link.call(self._put(values))
        try:
            answer.result(_PUT_S)
        except (TimeoutError, CancelledError):  # all is put again when the index is back
            answer.cancel()

    def remove(self, is_meant: Callable[[str], bool]) -> None:
        self._link.call(self._remove(is_meant)).result()

    def close(self) -> None: ...

    # --- on the loop

    async def _get(self, keys: Sequence[bytes]) -> dict[bytes, Sealed]:
        try:
            with self._link.index_breaker.asking(*INDEX_PROBLEMS):
                values: Sequence[Any] = await self._link.index.redis.mget(
                    [self._link.index.keys.reply(key) for key in keys]
                )
        except INDEX_PROBLEMS:
            return {}
        size, pairs = self.seal_bytes, zip(keys, values, strict=True)
        return {key: Sealed("", value[:size], value[size:]) for key, value in pairs if value}

    async def _put(self, values: Mapping[bytes, Sealed]) -> None:
        keys = self._link.index.keys
        try:
            with self._link.index_breaker.asking(*INDEX_PROBLEMS):
                async with self._link.index.redis.pipeline(transaction=True) as pipe:
                    for key, sealed in values.items():
                        pipe.set(keys.reply(key), sealed.seal + sealed.value, px=self._expiry_ms)
                        pipe.sadd(self._of(sealed.namespace), key)
                        pipe.pexpire(self._of(sealed.namespace), self._expiry_ms)
                        pipe.sadd(keys.reply_namespaces, sealed.namespace)
                    await pipe.execute()
        except INDEX_PROBLEMS:
            pass

    async def _remove(self, is_meant: Callable[[str], bool]) -> None:
        redis, keys = self._link.index.redis, self._link.index.keys
        with self._link.index_breaker.asking(*INDEX_PROBLEMS):
            listed: Any = await redis.smembers(keys.reply_namespaces)
            known = {"", *(name.decode("utf-8", "replace") for name in listed), *await self._link.index.namespaces()}
            for namespace in filter(is_meant, known):
                for _ in range(_MAX_PASSES):
                    if not await self._remove_replies(namespace):
                        break
                await redis.srem(keys.reply_namespaces, namespace)
                await self._remove_replies(namespace)  # those that were put before it was out of that set

    async def _remove_replies(self, namespace: str) -> int:
        """Removes the replies that are listed of a namespace, each with its entry in the list; returns how many."""
        num_removed = 0
        async for key in self._link.index.redis.sscan_iter(self._of(namespace), count=_SCANNED_AT_ONCE):
            async with self._link.index.redis.pipeline(transaction=True) as pipe:
                pipe.delete(self._link.index.keys.reply(key))
                pipe.srem(self._of(namespace), key)
                await pipe.execute()
            num_removed += 1
        return num_removed

    def _of(self, namespace: str) -> bytes:
        return self._link.index.keys.replies(namespace_hash(namespace))
