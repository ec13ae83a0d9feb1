"""Remembered replies in the index: a `leftoff.chat.replies.ReplyStore` that machines share.

A conversation that moves to another machine is to be written there with the tokens that the model wrote here: else all
after the first reply would have to be read again. A machine's own store, if it has one, is asked first.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blake3 import blake3

from leftoff.disk.reply_store import FileReplyStore
from leftoff.lru import LruCache
from leftoff.store.index import INDEX_PROBLEMS
from leftoff.store.keys import namespace_hash
from leftoff.store.link import Link, check

_PATIENCE_S = 0.5
_RECENT_BYTES = 8 << 20
_OVERHEAD_BYTES = 200
_SEAL_BYTES = 16
_DAY_MS = 86_400_000
_SCANNED_AT_ONCE = 500


@dataclass(frozen=True)
class _Reply:
    namespace: str
    value: bytes

    @property
    def num_bytes(self) -> int:
        return len(self.value) + _OVERHEAD_BYTES


class IndexReplies:
    """Replies of one fingerprint. Any thread but that of the link may call it; nothing is raised."""

    def __init__(self, link: Link, fingerprint: str, own: FileReplyStore | None = None, *, days: int = 30) -> None:
        self._link = link
        self._fingerprint = fingerprint.encode()
        self._own = own
        self._days = days
        self._recent: LruCache[bytes, _Reply] = LruCache(
            max_bytes=_RECENT_BYTES, size_of=lambda _, reply: reply.num_bytes
        )
        link.index_breaker.when_back.append(self._put_again)

    def get(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        found = dict(self._own.get(keys)) if self._own is not None else {}
        recent = self._recent.get_many(keys)
        found |= {key: reply.value for key, reply in zip(keys, recent, strict=True) if reply is not None}
        missing = [key for key in keys if key not in found]
        if missing and not self._link.index_breaker.is_failing:
            answer = self._link.call(self._get(missing))
            try:
                found |= answer.result(_PATIENCE_S)
            except TimeoutError:
                answer.cancel()
        return found

    def put(self, key: bytes, namespace: str, value: bytes) -> None:
        if self._own is not None:
            self._own.put(key, namespace, value)
        self._recent.put(key, _Reply(namespace, value))
        self._link.call(self._put(key, namespace, value))

    def remove(self, is_meant: Callable[[str], bool]) -> None:
        self._recent.remove_if(lambda reply: is_meant(reply.namespace))
        if self._own is not None:
            self._own.remove(is_meant)
        self._link.call(self._remove(is_meant))

    def _put_again(self) -> None:
        """The index may have forgotten what was put before it failed."""
        for key, reply in self._recent.items():
            self._link.call(self._put(key, reply.namespace, reply.value))

    # --- on the loop

    async def _get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        try:
            check(self._link.index_breaker)
            with self._link.index_breaker.watching(*INDEX_PROBLEMS):
                values: Sequence[Any] = await self._link.index.redis.mget([self._key(key) for key in keys])
        except INDEX_PROBLEMS:
            return {}
        pairs = zip(keys, values, strict=True)
        return {key: value[_SEAL_BYTES:] for key, value in pairs if value and self._is_sound(key, value)}

    async def _put(self, key: bytes, namespace: str, value: bytes) -> None:
        try:
            check(self._link.index_breaker)
            with self._link.index_breaker.watching(*INDEX_PROBLEMS):
                async with self._link.index.redis.pipeline(transaction=True) as pipe:
                    pipe.set(self._key(key), self._seal(key, value) + value, px=self._days * _DAY_MS)
                    pipe.sadd(self._of(namespace), key)
                    pipe.pexpire(self._of(namespace), self._days * _DAY_MS)
                    await pipe.execute()
        except INDEX_PROBLEMS:
            pass  # it is put again when the index is back

    async def _remove(self, is_meant: Callable[[str], bool]) -> None:
        redis, keys = self._link.index.redis, self._link.index.keys
        try:
            names: Any = await redis.zrange(keys.namespaces, 0, -1)
            for namespace in filter(is_meant, {"", *(name.decode() for name in names)}):
                async for key in redis.sscan_iter(self._of(namespace), count=_SCANNED_AT_ONCE):
                    await redis.delete(self._key(key))
                await redis.delete(self._of(namespace))
        except INDEX_PROBLEMS as error:
            self._link.index_breaker.failed(error)
        await asyncio.sleep(0)

    def _key(self, key: bytes) -> bytes:
        return self._link.index.keys.reply(key)

    def _of(self, namespace: str) -> bytes:
        return self._link.index.keys.replies(namespace_hash(namespace))

    def _seal(self, key: bytes, value: bytes) -> bytes:
        return blake3(self._fingerprint + key + value).digest(_SEAL_BYTES)

    def _is_sound(self, key: bytes, value: bytes) -> bool:
        return value[:_SEAL_BYTES] == self._seal(key, value[_SEAL_BYTES:])
