"""Responses that were given, for who goes on from them by their id. In memory, and bounded."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from leftoff.config import MIB
from leftoff.lru import LruCache
from leftoff.server.request.messages import Message
from leftoff.server.responses.types import Response

_MOST_RESPONSES = 4096
_MOST_BYTES = 128 * MIB


@dataclass(frozen=True)
class Stored:
    """`messages` is the conversation with the reply, without the instructions: those are given anew each time."""

    response: Response
    messages: tuple[Message, ...]
    num_bytes: int


class ResponseStore:
    """The oldest go first. Keys are the tenant's: nobody finds what belongs to another. For the event loop only."""

    def __init__(self, most_responses: int = _MOST_RESPONSES, most_bytes: int = _MOST_BYTES) -> None:
        self._stored: LruCache[tuple[str, str], Stored] = LruCache(
            max_entries=most_responses, max_bytes=most_bytes, size_of=lambda _, stored: stored.num_bytes
        )

    def add(self, tenant: str, response: Response, before: Stored | None, new: Sequence[Message]) -> None:
        """What it shares with the one before counts for both: either may be the last to go."""
        messages = (*(before.messages if before else ()), *new)
        num_bytes = len(msgspec.json.encode([response, *new])) + (before.num_bytes if before else 0)
        self._stored.put((tenant, response.id), Stored(response, messages, num_bytes))

    def get(self, tenant: str, response_id: str) -> Stored | None:
        return self._stored.peek((tenant, response_id))

    def delete(self, tenant: str, response_id: str) -> bool:
        return self._stored.pop((tenant, response_id)) is not None
