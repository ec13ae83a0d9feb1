"""The last turn of each conversation, and what was made of it: the next turn goes on from there.

Clients send a whole conversation with every turn. All that is made of a message, its form for the template, what it
says, its place in the text, its tokens, is made once, as long as the turn is remembered.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from blake3 import blake3
from msgspec import json

from leftoff.chat.conversation import Conversation
from leftoff.chat.prompts import MadePrompt
from leftoff.chat.replies import Transcript
from leftoff.lru import LruCache
from leftoff.types import header_size

_REMEMBERED_BYTES = 64 << 20
_NAMING = 3  # messages after the header, by which a conversation is known again


@dataclass(frozen=True, eq=False)
class LastTurn:
    """A conversation as the client sent it, what its messages say after the rules, and the prompt made of them."""

    conversation: Conversation
    transcript: Transcript
    made: MadePrompt

    def as_before(self, conversation: Conversation) -> Conversation:
        """A conversation with this turn's own objects in place of equal messages and tools: they compare at once."""
        known, now = self.conversation, conversation.messages
        same = [old if old == new else new for old, new in zip(known.messages, now, strict=False)]
        tools = known.tools if known.tools == conversation.tools else conversation.tools
        return replace(conversation, messages=[*same, *now[len(same) :]], tools=tools)


class LastTurns:
    """An LRU cache, bounded in bytes. Nothing of one namespace is found for another. Thread-safe."""

    def __init__(self) -> None:
        self._turns: LruCache[bytes, LastTurn] = LruCache(
            max_bytes=_REMEMBERED_BYTES, size_of=lambda _, turn: turn.made.num_bytes
        )

    def find(self, conversation: Conversation) -> LastTurn | None:
        name = _name(conversation)
        return self._turns.get(name) if name is not None else None

    def put(self, turn: LastTurn) -> None:
        name = _name(turn.conversation)
        if name is not None:
            self._turns.put(name, turn)

    def remove(self, is_meant: Callable[[str], bool]) -> None:
        """Removes the turns of the namespaces that are meant."""
        self._turns.remove_if(lambda turn: is_meant(turn.conversation.namespace))


def _name(conversation: Conversation) -> bytes | None:
    """A hash of the first messages after the header, which clients change. None for a conversation that has fewer."""
    start = header_size(conversation.messages)
    first = conversation.messages[start : start + _NAMING]
    return blake3(json.encode((conversation.namespace, first))).digest() if len(first) == _NAMING else None
