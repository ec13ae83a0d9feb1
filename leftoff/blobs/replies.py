"""Replies of the model, and names of saved slots, beyond the end of the process: a `leftoff.chat.replies.ReplyStore`.

    put ──> recent ──> writer's thread ──> medium <── get

What is put is on the medium within a second, and at once where machines share it. A medium that fails raises nothing:
what cannot be written is kept in RAM alone, and written once the medium says that it is back.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import NamedTuple, Protocol

from blake3 import blake3

from leftoff.blobs.medium import Deletion
from leftoff.blobs.threads import THREADS, Threads
from leftoff.lru import LruCache

_RECENT_BYTES = 8 << 20
_OVERHEAD_BYTES = 200


class Sealed(NamedTuple):
    """A value as it lies on the medium, with the seal by which damage is noticed."""

    namespace: str
    seal: bytes
    value: bytes


class ReplyMedium(Protocol):
    """Where values lie by their keys. Any thread may call `get`; `get` and `put` report problems and raise nothing."""

    seal_bytes: int
    gather_s: float  # how long values that are put one by one wait, to be written together

    def get(self, keys: Sequence[bytes]) -> Mapping[bytes, Sealed]:
        """The values that are stored under these keys; their `namespace` may be empty, since nobody reads it."""
        ...

    def put(self, values: Mapping[bytes, Sealed]) -> None: ...
    def remove(self, is_meant: Callable[[str], bool]) -> None:
        """Deletes for good the values of the namespaces that are meant. It alone raises: who deletes wants to know."""
        ...

    def close(self) -> None: ...


class MediumReplies:
    """The values of one model. Any thread may call it."""

    def __init__(
        self, medium: ReplyMedium, fingerprint: str, threads: Threads = THREADS, key: bytes | None = None
    ) -> None:
        """With a key, seals are MACs: who can write to the medium cannot make a value that is taken."""
        self._medium = medium
        self._key = key
        self._fingerprint = fingerprint.encode()
        self._recent: LruCache[bytes, Sealed] = LruCache(
            max_bytes=_RECENT_BYTES, size_of=lambda _, sealed: len(sealed.value) + _OVERHEAD_BYTES
        )
        self._unwritten: dict[bytes, None] = {}  # keys, as an ordered set; the values are among the recent ones
        self._removals: list[Deletion] = []
        self._changed = threads.condition()
        self._is_closed = False
        self._thread = threads.start(self._write_behind, "leftoff-replies")

    def get(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """The values that are there. What is not as it was written is left out."""
        recent = zip(keys, self._recent.get_many(keys), strict=True)
        found = {key: sealed.value for key, sealed in recent if sealed is not None}
        if missing := [key for key in keys if key not in found]:
            stored = self._medium.get(missing)
            found |= {key: kept.value for key, kept in stored.items() if kept.seal == self._seal(key, kept.value)}
        return found

    def put(self, key: bytes, namespace: str, value: bytes) -> None:
        self._recent.put(key, Sealed(namespace, self._seal(key, value), value))
        self._write([key])

    def put_again(self) -> None:
        """The medium is back, and may have forgotten what was put before it failed."""
        self._write([key for key, _ in self._recent.items()])

    def remove(self, is_meant: Callable[[str], bool]) -> "list[Future[None]]":
        """Removes the values of the namespaces that are meant. The writer's thread does, after what it has begun."""
        self._recent.remove_if(lambda sealed: is_meant(sealed.namespace))
        done: Future[None] = Future()
        with self._changed:
            self._removals.append(Deletion(is_meant, done))
            self._changed.notify()
            if self._is_closed:
                done.cancel()
        return [done]

    def close(self) -> None:
        """Writes what waits."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()
        self._medium.close()

    def _seal(self, key: bytes, value: bytes) -> bytes:
        content = self._fingerprint + key + value
        hasher = blake3(content) if self._key is None else blake3(content, key=self._key)
        return hasher.digest(self._medium.seal_bytes)

    def _write(self, keys: Sequence[bytes]) -> None:
        with self._changed:
            self._unwritten |= dict.fromkeys(keys)
            self._changed.notify()

    def _write_behind(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._unwritten or self._removals or self._is_closed)
                if not self._unwritten and not self._removals:
                    return
                self._changed.wait_for(lambda: self._removals or self._is_closed, timeout=self._medium.gather_s)
                removals, self._removals = self._removals, []
                keys, self._unwritten = self._unwritten, {}
            for removal in removals:
                self._remove(removal)
            if values := {key: sealed for key in keys if (sealed := self._recent.peek(key)) is not None}:
                self._medium.put(values)

    def _remove(self, removal: Deletion) -> None:
        if not removal.done.set_running_or_notify_cancel():
            return
        try:
            self._medium.remove(removal.is_meant)
            removal.done.set_result(None)
        except Exception as problem:  # the thread must live; whoever waits raises it
            removal.done.set_exception(problem)


class ReplyChain:
    """Several stores of replies, the faster first: asked one after the other, and all of them written to."""

    def __init__(self, stores: Iterable[MediumReplies]) -> None:
        self._stores = tuple(stores)

    def get(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for store in self._stores:
            if missing := [key for key in keys if key not in found]:
                found |= store.get(missing)
        return found

    def put(self, key: bytes, namespace: str, value: bytes) -> None:
        for store in self._stores:
            store.put(key, namespace, value)

    def remove(self, is_meant: Callable[[str], bool]) -> "list[Future[None]]":
        return [done for store in self._stores for done in store.remove(is_meant)]
