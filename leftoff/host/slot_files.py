"""llama-server's slot files: names under which clients save the sequence of a slot, to restore it later.

No file has such a name. The sequence itself is in the cache, like every other, and may be evicted there; under the name
its tokens are remembered, in memory and, where there is a disk, beside the index of the cache.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np
from blake3 import blake3
from msgspec import msgpack

from leftoff.chat.replies import ReplyStore
from leftoff.lru import LruCache
from leftoff.types import Tokens

_MAX_FILES = 4096
_MAX_BYTES = 64 << 20


@dataclass(frozen=True)
class SlotFile:
    """The tokens of a sequence, as bytes, and the bytes that its state takes."""

    namespace: str
    data: bytes
    state_bytes: int

    @property
    def tokens(self) -> Tokens:
        return np.frombuffer(self.data, np.int32)


class SlotFiles:
    """The latest files of all tenants, by tenant and name. Any thread may call it."""

    def __init__(self, store: ReplyStore | None) -> None:
        self._store = store
        self._files: LruCache[bytes, SlotFile] = LruCache(
            max_entries=_MAX_FILES, max_bytes=_MAX_BYTES, size_of=lambda _, file: len(file.data)
        )

    def put(self, tenant: str, name: str, file: SlotFile) -> None:
        key = _key(tenant, name)
        self._files.put(key, file)
        if self._store is not None:
            self._store.put(key, file.namespace, msgpack.encode(file))

    def get(self, tenant: str, name: str) -> SlotFile | None:
        key = _key(tenant, name)
        file = self._files.get(key)
        if file is None and self._store is not None and (value := self._store.get([key]).get(key)):
            try:
                file = msgpack.decode(value, type=SlotFile)
            except msgspec.MsgspecError:
                return None  # of another version of leftoff
        return file

    def remove(self, is_meant: Callable[[str], bool]) -> None:
        """Removes the files of the namespaces that are meant, from memory; the store removes its own."""
        self._files.remove_if(lambda file: is_meant(file.namespace))


def _key(tenant: str, name: str) -> bytes:
    return blake3(msgpack.encode(("slot file", tenant, name))).digest()
