"""Replies as the model wrote them, found again when clients send them back.

A reply is known by the whole conversation before it and by what it says: two replies that say the same may come from
different thoughts.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from blake3 import blake3
from msgspec import msgpack

from leftoff.chat.formats.parts import Call, Said
from leftoff.chat.num_values import is_bearable
from leftoff.chat.template.render import MessageDict
from leftoff.lru import LruCache

_REMEMBERED_BYTES = 16 << 20
_OVERHEAD_BYTES = 400


@dataclass(frozen=True)
class Written:
    """The text of a reply up to its end token, and what it says."""

    text: str
    said: Said


@dataclass(frozen=True)
class _Reply:
    """A key is a hash and does not tell whose reply it leads to."""

    written: Written
    namespace: str

    @property
    def num_bytes(self) -> int:
        said = self.written.said
        calls = sum(len(call.name) + len(call.arguments) for call in said.calls)
        return 2 * (len(self.written.text) + len(said.content) + len(said.reasoning) + calls) + _OVERHEAD_BYTES


class RememberedReplies:
    """The most recent replies of each namespace. Any thread may call it."""

    def __init__(self, limit_bytes: int = _REMEMBERED_BYTES) -> None:
        self._replies: LruCache[bytes, _Reply] = LruCache(
            max_bytes=limit_bytes, size_of=lambda _, reply: reply.num_bytes
        )

    def add(self, conversation: bytes, written: Written, namespace: str = "") -> None:
        """`conversation` is the key of what it replied to, in this namespace."""
        key = _key(conversation, "assistant", shown(written.said))
        self._replies.put(key, _Reply(written, namespace))

    def clear(self, is_meant: Callable[[str], bool] = lambda _: True) -> None:
        """Forgets the replies of some namespaces."""
        self._replies.remove_if(lambda reply: is_meant(reply.namespace))

    def find(self, conversation: bytes) -> Written | None:
        """The reply that a conversation ends with, by the key of all of it."""
        reply = self._replies.get(conversation)
        return reply.written if reply is not None else None


def conversation_keys(messages: Sequence[MessageDict], namespace: str) -> list[bytes]:
    """One for each message: of the conversation up to and with it."""
    key = namespace.encode()
    return [key := _key(key, str(message.get("role")), shown(said_of(message))) for message in messages]


def _key(before: bytes, role: str, said: Said) -> bytes:
    return blake3(before + msgpack.encode((role, said))).digest()


def said_of(message: MessageDict) -> Said:
    """What a message on its way back says. Its reasoning is left aside: most clients do not send it."""
    calls = [call.get("function", call) for call in message.get("tool_calls") or ()]
    content = message.get("content")
    return Said(
        content=content if isinstance(content, str) else "",
        calls=tuple(Call(str(call.get("name", "")), _json(call.get("arguments", ""))) for call in calls),
    )


def says_the_same(one: Said, other: Said) -> bool:
    return shown(one) == shown(other) and one.reasoning.strip() == other.reasoning.strip()


def shown(said: Said) -> Said:
    """What every client sends back, whatever it does to white space and JSON."""
    return Said(said.content.strip(), "", tuple(Call(call.name, _json(call.arguments)) for call in said.calls))


def _json(arguments: object) -> str:
    """One text for all ways to write the same."""
    try:
        if isinstance(arguments, str) and not is_bearable(arguments):
            return arguments
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
        return json.dumps(value, sort_keys=True)
    except (ValueError, TypeError, RecursionError):
        return str(arguments)
