"""Replies of the model, remembered as the tokens it wrote, to be found again when clients send them back.

A reply is looked up by the whole conversation before it. Clients send replies back without reasoning and with calls in
another JSON style, so what a message says is compared, not its characters.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import msgspec
from blake3 import blake3
from msgspec import msgpack

from leftoff.chat.conversation import text_of
from leftoff.chat.formats.parts import Call, ParsedReply
from leftoff.chat.meter import is_bearable
from leftoff.chat.template.render import MessageDict
from leftoff.chat.template.spans import num_equal
from leftoff.lru import LruCache

_REMEMBERED_BYTES = 32 << 20
_OVERHEAD_BYTES = 400
_MAX_REPLIES = 4  # to one conversation: who generates a reply anew may still go on with an earlier one
_MAX_WHOLE = 1 << 53  # JavaScript rounds larger ones


@dataclass(frozen=True)
class Written:
    """A reply up to its end token: its tokens, its text, and what it says."""

    tokens: tuple[int, ...]
    text: str
    said: ParsedReply
    moved: tuple[str, ...] = ()  # the texts that a rule moved out of the header of its prompt

    @cached_property
    def shown(self) -> ParsedReply:
        return shown(self.said)

    @property
    def num_bytes(self) -> int:
        said = self.said
        texts = (self.text, said.content, said.reasoning, *self.moved, *(c.name + c.arguments for c in said.calls))
        return 2 * sum(map(len, texts)) + 8 * len(self.tokens) + _OVERHEAD_BYTES


class ReplyStore(Protocol):
    """Keeps values beyond the end of the process. All methods return quickly, and raise nothing."""

    def get(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]: ...
    def put(self, key: bytes, namespace: str, value: bytes) -> None: ...
    def remove(self, is_meant: Callable[[str], bool]) -> "list[Future[None]]":
        """Removes the values of the namespaces that are meant. The futures raise what goes wrong on a medium."""
        ...


@dataclass(frozen=True)
class _Replies:
    """The latest replies to one conversation, the newest first. The namespace is kept, since keys are hashes."""

    namespace: str
    written: tuple[Written, ...]

    @property
    def num_bytes(self) -> int:
        return sum(written.num_bytes for written in self.written)


class RememberedReplies:
    """An LRU cache of replies, with a store below it if there is one. Thread-safe."""

    def __init__(
        self,
        store: ReplyStore | None = None,
        *,
        is_sound: Callable[[Written], bool] = lambda _: True,
        limit_bytes: int = _REMEMBERED_BYTES,
    ) -> None:
        """Of what comes from the store, only what `is_sound` is taken."""
        self._store = store
        self._is_sound = is_sound
        self._replies: LruCache[bytes, _Replies] = LruCache(
            max_bytes=limit_bytes, size_of=lambda _, replies: replies.num_bytes
        )

    def add(self, conversation: bytes, written: Written, namespace: str = "") -> None:
        """`conversation` is the key of the conversation that was replied to, for which `find` was called before."""
        known = self._replies.get(conversation)
        others = (other for other in known.written if other.shown != written.shown) if known else ()
        replies = (written, *others)[:_MAX_REPLIES]
        self._replies.put(conversation, _Replies(namespace, replies))
        if self._store is not None:
            self._store.put(conversation, namespace, msgpack.encode(replies))

    def remove(self, is_meant: Callable[[str], bool] = lambda _: True) -> list[Future[None]]:
        """Removes the replies of the namespaces that are meant. The futures are of what lies beyond this process."""
        self._replies.remove_if(lambda replies: is_meant(replies.namespace))
        return self._store.remove(is_meant) if self._store is not None else []

    def find(self, conversations: Sequence[bytes], namespace: str = "") -> list[tuple[Written, ...]]:
        """For each key of a conversation: the replies to it, the newest first."""
        found = self._replies.get_many(conversations)
        missing = [key for key, replies in zip(conversations, found, strict=True) if replies is None]
        stored = self._load(missing, namespace) if self._store is not None and missing else {}
        return [
            replies.written if replies is not None else stored.get(key, ())
            for key, replies in zip(conversations, found, strict=True)
        ]

    def _load(self, keys: Sequence[bytes], namespace: str) -> dict[bytes, tuple[Written, ...]]:
        assert self._store is not None
        loaded: dict[bytes, tuple[Written, ...]] = {}
        for key, value in self._store.get(keys).items():
            try:
                loaded[key] = tuple(filter(self._is_sound, msgpack.decode(value, type=tuple[Written, ...])))
            except msgspec.MsgspecError:
                continue  # of another version of leftoff
            self._replies.put(key, _Replies(namespace, loaded[key]))
        return loaded


@dataclass(frozen=True)
class Transcript:
    """The messages of a conversation as parsed replies, and a hash of the conversation before each and of the whole."""

    messages: Sequence[MessageDict]
    said: Sequence[ParsedReply]
    keys: Sequence[bytes]

    @classmethod
    def of(cls, messages: Sequence[MessageDict], namespace: str, last: "Transcript | None" = None) -> "Transcript":
        """`last` is of the same namespace, perhaps of an earlier turn: messages that both begin with are not read."""
        num_known = num_equal(messages, last.messages) if last is not None else 0
        said = [*last.said[:num_known]] if last is not None else []
        keys = [*last.keys[: num_known + 1]] if last is not None else [namespace.encode()]
        for message in messages[num_known:]:
            said.append(shown(said_of(message)))
            keys.append(blake3(keys[-1] + msgpack.encode((str(message.get("role")), said[-1]))).digest())
        return cls(messages, said, keys)


def said_of(message: MessageDict) -> ParsedReply:
    """The content and calls of a message that a client sends. Reasoning is ignored: most clients leave it out."""
    calls = [call.get("function", call) for call in message.get("tool_calls") or ()]
    return ParsedReply(
        content=text_of(message),
        calls=tuple(Call(str(call.get("name", "")), _json(call.get("arguments", ""))) for call in calls),
    )


def says_the_same(one: ParsedReply, other: ParsedReply) -> bool:
    """Whether two replies have the same content, calls and reasoning, however they are written."""
    return shown(one) == shown(other) and one.reasoning.strip() == other.reasoning.strip()


def shown(said: ParsedReply) -> ParsedReply:
    """The part of a reply that clients send back, without differences in white space and JSON style."""
    return ParsedReply(said.content.strip(), "", tuple(Call(call.name, _json(call.arguments)) for call in said.calls))


def _json(arguments: object) -> str:
    """JSON in one canonical form, so that equal arguments compare equal."""
    try:
        if isinstance(arguments, str) and not is_bearable(arguments):
            return arguments
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        return json.dumps(json.loads(text, parse_int=_number, parse_float=_number), sort_keys=True)
    except (ValueError, TypeError, RecursionError, OverflowError):
        return str(arguments)


def _number(text: str) -> float | None:
    """A number as it comes back from a client in JavaScript, where 1.0 is 1 and what is too large is null."""
    value = float(text)
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) <= _MAX_WHOLE else value
