"""Remembered replies in the index, which machines share: the medium of a `blobs.replies.MediumReplies`.

A conversation that moves to another machine is to be written there with the tokens that the model wrote here: else all
after the first reply would have to be read again.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any

from leftoff.blobs.replies import MediumReplies, Sealed
from leftoff.store.index import INDEX_PROBLEMS
from leftoff.store.keys import namespace_hash
from leftoff.store.link import Link, check

_PATIENCE_S = 0.5
_PUT_S = 5.0
_DAY_MS = 86_400_000
_SCANNED_AT_ONCE = 500


def open_index_replies(link: Link, fingerprint: str, *, days: int = 30) -> MediumReplies:
    """The replies of one fingerprint. An index that was restarted is given the latest of them again."""
    replies = MediumReplies(IndexReplies(link, days), fingerprint)
    link.index_breaker.when_back.append(replies.put_again)
    return replies


class IndexReplies:
    """Implements `blobs.replies.ReplyMedium`. Any thread but that of the link may call it."""

    seal_bytes = 16

    def __init__(self, link: Link, days: int) -> None:
        self._link = link
        self._expiry_ms = days * _DAY_MS

    def get(self, keys: Sequence[bytes]) -> Mapping[bytes, Sealed]:
        if self._link.index_breaker.is_failing:
            return {}
        answer = self._link.call(self._get(keys))
        try:
            return answer.result(_PATIENCE_S)
        except TimeoutError:
            answer.cancel()
            return {}

    def put(self, values: Mapping[bytes, Sealed]) -> None:
        with suppress(TimeoutError, CancelledError):  # all is put again when the index is back
            self._link.call(self._put(values)).result(_PUT_S)

    def remove(self, is_meant: Callable[[str], bool]) -> None:
        self._link.call(self._remove(is_meant))

    def close(self) -> None: ...

    # --- on the loop

    async def _get(self, keys: Sequence[bytes]) -> dict[bytes, Sealed]:
        try:
            check(self._link.index_breaker)
            with self._link.index_breaker.watching(*INDEX_PROBLEMS):
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
            check(self._link.index_breaker)
            with self._link.index_breaker.watching(*INDEX_PROBLEMS):
                async with self._link.index.redis.pipeline(transaction=True) as pipe:
                    for key, sealed in values.items():
                        pipe.set(keys.reply(key), sealed.seal + sealed.value, px=self._expiry_ms)
                        pipe.sadd(self._of(sealed.namespace), key)
                        pipe.pexpire(self._of(sealed.namespace), self._expiry_ms)
                    await pipe.execute()
        except INDEX_PROBLEMS:
            pass

    async def _remove(self, is_meant: Callable[[str], bool]) -> None:
        redis, keys = self._link.index.redis, self._link.index.keys
        try:
            for namespace in filter(is_meant, {"", *await self._link.index.namespaces()}):
                async for key in redis.sscan_iter(self._of(namespace), count=_SCANNED_AT_ONCE):
                    await redis.delete(keys.reply(key))
                await redis.delete(self._of(namespace))
        except INDEX_PROBLEMS as error:
            self._link.index_breaker.failed(error)

    def _of(self, namespace: str) -> bytes:
        return self._link.index.keys.replies(namespace_hash(namespace))
