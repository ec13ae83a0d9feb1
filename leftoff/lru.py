"""A cache bounded by entries and bytes, which drops the least recently used entry first."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class LruCache(Generic[Key, Value]):
    """Any thread may call it. An entry that is larger than `max_bytes` alone is not kept."""

    def __init__(
        self,
        *,
        max_entries: int | None = None,
        max_bytes: int | None = None,
        size_of: Callable[[Key, Value], int] = lambda _key, _value: 0,
    ) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._size_of = size_of
        self._lock = threading.Lock()
        self._entries: OrderedDict[Key, Value] = OrderedDict()
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> Value | None:
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    def get_many(self, keys: Iterable[Key]) -> list[Value | None]:
        """`get` for each of them."""
        with self._lock:
            found = [(key, self._entries.get(key)) for key in keys]
            for key, value in found:
                if value is not None:
                    self._entries.move_to_end(key)
            return [value for _, value in found]

    def items(self) -> list[tuple[Key, Value]]:
        """All entries in this moment, the least recently used first."""
        with self._lock:
            return [*self._entries.items()]

    def peek(self, key: Key) -> Value | None:
        """`get` that does not count as a use."""
        return self._entries.get(key)

    def put(self, key: Key, value: Value) -> None:
        with self._lock:
            self._put(key, value)

    def put_if_absent(self, key: Key, value: Value) -> Value:
        """Returns the value that the key has now: the old one if there was one."""
        with self._lock:
            kept = self._entries.get(key, value)
            self._put(key, kept)
            return kept

    def pop(self, key: Key) -> Value | None:
        with self._lock:
            return self._pop(key)

    def remove_if(self, is_removed: Callable[[Value], bool]) -> None:
        with self._lock:
            for key in [key for key, value in self._entries.items() if is_removed(value)]:
                self._pop(key)

    def _put(self, key: Key, value: Value) -> None:
        self._pop(key)
        self._entries[key] = value
        self.num_bytes += self._size_of(key, value)
        while self._is_over():
            self._pop(next(iter(self._entries)))

    def _pop(self, key: Key) -> Value | None:
        value = self._entries.pop(key, None)
        if value is not None:
            self.num_bytes -= self._size_of(key, value)
        return value

    def _is_over(self) -> bool:
        has_too_many = self._max_entries is not None and len(self._entries) > self._max_entries
        return has_too_many or (self._max_bytes is not None and self.num_bytes > self._max_bytes)
