"""Shows replies that clients send back to the template exactly as the model wrote them.

Clients send a reply back without its reasoning, and templates write tool calls in their own way: `{"a":1}` for
`{"a": 1}`. Each of these changes the text from there on, and all tokens after it would have to be read again. So
replies are remembered as they were written. One that comes back gets its reasoning back before the template sees it,
and where the rendered text then says the same in other characters, the model's own take their place.

A reply is found by the whole conversation before it and by what it says: two replies that say the same may have
different reasoning.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from blake3 import blake3
from msgspec import msgpack

from leftoff.chat.conversation import Conversation, Note
from leftoff.chat.formats.parser import Output
from leftoff.chat.formats.parts import Call, ParsedReply, join_parts
from leftoff.chat.meter import is_bearable
from leftoff.chat.prompts import PromptMaker
from leftoff.chat.template.render import MessageDict
from leftoff.chat.template.spans import Rendered, TextSpan
from leftoff.lru import LruCache

_REMEMBERED_BYTES = 16 << 20
_OVERHEAD_BYTES = 400
_DROPPED = Note("reasoning dropped", "reasoning dropped: that of an earlier reply is not told again")
_RERENDERED = Note("re-rendered", "re-rendered: an earlier reply came back in other letters than the model's")


@dataclass(frozen=True)
class Written:
    """The text of a reply up to its end token, and what it says."""

    text: str
    said: ParsedReply


@dataclass(frozen=True)
class _Reply:
    """A remembered reply. Its namespace is stored beside it, since keys are hashes."""

    written: Written
    namespace: str

    @property
    def num_bytes(self) -> int:
        said = self.written.said
        calls = sum(len(call.name) + len(call.arguments) for call in said.calls)
        return 2 * (len(self.written.text) + len(said.content) + len(said.reasoning) + calls) + _OVERHEAD_BYTES


class RememberedReplies:
    """An LRU cache of replies as the model wrote them. Thread-safe."""

    def __init__(self, limit_bytes: int = _REMEMBERED_BYTES) -> None:
        self._replies: LruCache[bytes, _Reply] = LruCache(
            max_bytes=limit_bytes, size_of=lambda _, reply: reply.num_bytes
        )

    def add(self, conversation: bytes, written: Written, namespace: str = "") -> None:
        """`conversation` is the key of the conversation that was replied to."""
        key = _key(conversation, "assistant", shown(written.said))
        self._replies.put(key, _Reply(written, namespace))

    def clear(self, is_meant: Callable[[str], bool] = lambda _: True) -> None:
        """Drops the replies of the namespaces that are meant."""
        self._replies.remove_if(lambda reply: is_meant(reply.namespace))

    def find(self, keys: Sequence[bytes]) -> list[Written | None]:
        """For each key of a conversation up to a message: the remembered reply that this message is."""
        return [reply.written if reply is not None else None for reply in self._replies.get_many(keys)]


class _Place(NamedTuple):
    start: int
    end: int


class VerbatimReplies:
    """The remembered replies of one conversation: first its messages are completed, then the text rendered from them.

    `key` is the one under which a reply to the conversation is remembered.
    """

    def __init__(self, prompts: PromptMaker, conversation: Conversation, remembered: RememberedReplies | None) -> None:
        messages = conversation.messages
        keys = conversation_keys(messages, conversation.namespace)
        self.key = keys[-1] if keys else b""
        self.notes: tuple[Note, ...] = ()
        self._prompts = prompts
        self._output = Output(prompts.format, conversation.tools or ())
        self._known: dict[int, Written] = {}  # by the message's identity: the oldest may be cut
        if remembered is not None:
            found = zip(messages, remembered.find(keys), strict=True)
            self._known = {id(message): written for message, written in found if written is not None}
        self._told: list[Written | None] = []

    @property
    def are_known(self) -> bool:
        """Whether any reply of the conversation is remembered, so that `restore` may change the text."""
        return bool(self._known)

    def with_reasoning(self, messages: Sequence[MessageDict]) -> list[MessageDict]:
        """Puts the reasoning back into remembered replies, for the templates that show it."""
        self._told = [self._known.get(id(message)) for message in messages if _is_reply_with_words(message)]
        return [_with_reasoning(message, self._known.get(id(message))) for message in messages]

    def restore(self, rendered: Rendered) -> Rendered:
        """Replaces replies that say the same in other characters by the model's own text."""
        opening = rendered.text[rendered.spans[-1].end :] if rendered.spans else ""
        if not opening or not any(self._told):
            return rendered
        notes: list[Note] = []
        spans = [span for span in rendered.spans if span.role == "assistant"]
        for span, written in list(zip(spans, self._told, strict=False))[::-1]:  # what stands before is not moved
            if written is None:
                continue
            place = self._place(rendered, span, opening)
            told = rendered.text[place.start : place.end] if place else ""
            if place and told != written.text and says_the_same(self._said(told, opening), written.said):
                rendered = _replaced(rendered, place, written.text)
            elif told != written.text:
                notes.append(_DROPPED if written.said.reasoning else _RERENDERED)
        self.notes = tuple(dict.fromkeys(notes))
        return rendered

    def _place(self, rendered: Rendered, span: TextSpan, opening: str) -> _Place | None:
        """Where the text of the reply is: after the generation prompt, up to an end token."""
        before = max((other.start for other in rendered.spans if other.start < span.start), default=0)
        found = rendered.text.rfind(opening, before, span.start)
        if found < 0:
            return None
        start = found + len(opening)
        endings = (rendered.text.find(ending, start, span.end) for ending in self._prompts.endings)
        end = min((end for end in endings if end >= 0), default=-1)
        return _Place(start, end) if end >= 0 else None

    def _said(self, text: str, opening: str) -> ParsedReply:
        parser = self._output.parser(opening)
        return join_parts((*parser.push(text), *parser.close()))


def _is_reply_with_words(message: MessageDict) -> bool:
    return message.get("role") == "assistant" and bool(message.get("content") or message.get("tool_calls"))


def _with_reasoning(message: MessageDict, written: Written | None) -> MessageDict:
    if written is None or not written.said.reasoning or message.get("reasoning_content"):
        return message
    return {**message, "reasoning_content": written.said.reasoning}


def _replaced(rendered: Rendered, place: _Place, text: str) -> Rendered:
    moved = len(text) - (place.end - place.start)

    def at(position: int) -> int:
        if position <= place.start:
            return position
        return position + moved if position >= place.end else place.start

    spans = tuple(replace(span, start=at(span.start), end=at(span.end)) for span in rendered.spans)
    return Rendered(rendered.text[: place.start] + text + rendered.text[place.end :], spans)


def conversation_keys(messages: Sequence[MessageDict], namespace: str) -> list[bytes]:
    """For each message, a hash of the conversation up to and including it."""
    key = namespace.encode()
    return [key := _key(key, str(message.get("role")), shown(said_of(message))) for message in messages]


def _key(before: bytes, role: str, said: ParsedReply) -> bytes:
    return blake3(before + msgpack.encode((role, said))).digest()


def said_of(message: MessageDict) -> ParsedReply:
    """The content and calls of a message that a client sends. Reasoning is ignored: most clients leave it out."""
    calls = [call.get("function", call) for call in message.get("tool_calls") or ()]
    content = message.get("content")
    return ParsedReply(
        content=content if isinstance(content, str) else "",
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
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
        return json.dumps(value, sort_keys=True)
    except (ValueError, TypeError, RecursionError):
        return str(arguments)
