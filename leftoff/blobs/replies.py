"""Replies of the model, and names of saved slots, beyond the end of the process: a `leftoff.chat.replies.ReplyStore`.

    put ──> recent ──> writer's thread ──> medium <── get

What is put is on the medium within a second. A medium that fails raises nothing: what cannot be written is kept in RAM
alone, and written once the medium says that it is back.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from blake3 import blake3

from leftoff.lru import LruCache

_RECENT_BYTES = 8 << 20
_OVERHEAD_BYTES = 200
_COLLECT_S = 0.2


class Sealed(NamedTuple):
    """A value as it lies on the medium, with the seal by which damage is noticed."""

    namespace: str
    seal: bytes
    value: bytes


class ReplyMedium(Protocol):
    """Where values lie by their keys. Any thread may call it; it reports its own problems, and raises nothing."""

    seal_bytes: int

    def get(self, keys: Sequence[bytes]) -> Mapping[bytes, Sealed]:
        """The values that are stored under these keys; their `namespace` may be empty, since nobody reads it."""
        ...

    def put(self, values: Mapping[bytes, Sealed]) -> None: ...
    def remove(self, is_meant: Callable[[str], bool]) -> None: ...
    def close(self) -> None: ...


class MediumReplies:
    """The values of one model. Any thread may call it."""

    def __init__(self, medium: ReplyMedium, fingerprint: str) -> None:
        self._medium = medium
        self._fingerprint = fingerprint.encode()
        self._recent: LruCache[bytes, Sealed] = LruCache(
            max_bytes=_RECENT_BYTES, size_of=lambda _, sealed: len(sealed.value) + _OVERHEAD_BYTES
        )
        self._unwritten: dict[bytes, None] = {}  # keys, as an ordered set; the values are among the recent ones
        self._changed = threading.Condition()
        self._writing = threading.Lock()  # so that nothing is written after it was removed
        self._is_closed = False
        self._thread = threading.Thread(target=self._write_behind, name="leftoff-replies", daemon=True)
        self._thread.start()

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

    def remove(self, is_meant: Callable[[str], bool]) -> None:
        """Removes the values of the namespaces that are meant."""
        self._recent.remove_if(lambda sealed: is_meant(sealed.namespace))
        with self._writing:
            self._medium.remove(is_meant)

    def close(self) -> None:
        """Writes what waits."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()
        self._medium.close()

    def _seal(self, key: bytes, value: bytes) -> bytes:
        return blake3(self._fingerprint + key + value).digest(self._medium.seal_bytes)

    def _write(self, keys: Sequence[bytes]) -> None:
        with self._changed:
            self._unwritten |= dict.fromkeys(keys)
            self._changed.notify()

    def _write_behind(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._unwritten or self._is_closed)
                if not self._unwritten:
                    return
                self._changed.wait_for(lambda: self._is_closed, timeout=_COLLECT_S)
            with self._writing:
                with self._changed:
                    keys, self._unwritten = self._unwritten, {}
                values = {key: sealed for key in keys if (sealed := self._recent.peek(key)) is not None}
                self._medium.put(values)


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

    def remove(self, is_meant: Callable[[str], bool]) -> None:
        for store in self._stores:
            store.remove(is_meant)
