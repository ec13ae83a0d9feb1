"""Stored responses and conversations: in memory, bounded, and apart for each tenant."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec

from leftoff.lru import LruCache
from leftoff.server.reply.response import Json
from leftoff.server.request.fields import Message
from leftoff.types import owner_of


class Sized(Protocol):
    """Anything that knows how many bytes it counts for."""

    @property
    def num_bytes(self) -> int: ...


Value = TypeVar("Value", bound=Sized)


class TenantStore(Generic[Value]):
    """The latest values by id. Tenants share the room equally, so that none evicts what belongs to another."""

    def __init__(self, *, max_entries: int, max_bytes: int, num_tenants: int = 1) -> None:
        self._max_entries = max(1, max_entries // num_tenants)
        self._max_bytes = max_bytes // num_tenants
        self._by_tenant: dict[str, LruCache[str, tuple[str, Value]]] = {}

    def put(self, namespace: str, name: str, value: Value) -> None:
        """Keeps a value for the owner of a namespace; it goes when the namespace is deleted."""
        tenant = owner_of(namespace)
        if tenant not in self._by_tenant:
            self._by_tenant[tenant] = LruCache(
                max_entries=self._max_entries, max_bytes=self._max_bytes, size_of=lambda _, kept: kept[1].num_bytes
            )
        self._by_tenant[tenant].put(name, (namespace, value))

    def get(self, tenant: str, name: str) -> Value | None:
        kept = self._by_tenant[tenant].get(name) if tenant in self._by_tenant else None
        return kept[1] if kept is not None else None

    def delete(self, tenant: str, name: str) -> bool:
        return tenant in self._by_tenant and self._by_tenant[tenant].pop(name) is not None

    def forget(self, is_meant: Callable[[str], bool]) -> None:
        """Drops the values of the namespaces that are meant."""
        for values in self._by_tenant.values():
            values.remove_if(lambda kept: is_meant(kept[0]))


@dataclass(frozen=True)
class Stored:
    """A response, and the conversation up to its end, without instructions: each request brings its own."""

    response: Json
    messages: tuple[Message, ...]
    num_bytes: int

    @classmethod
    def after(cls, before: "Stored | None", response: Json, new: Sequence[Message]) -> "Stored":
        """A response that follows `before`. Messages they share count for both: either may be evicted first."""
        num_bytes = len(msgspec.json.encode([response, *new]))
        if before is None:
            return cls(response, tuple(new), num_bytes)
        return cls(response, (*before.messages, *new), num_bytes + before.num_bytes)
