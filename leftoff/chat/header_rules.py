"""Rules that keep the header stable where clients change its text: a billing line, the date, the state of a repository.

One changed word at the top of a system prompt invalidates every token after it. A rule drops such text, moves it behind
the header, or pins it to the text that was seen first. They apply in this order, so that text is moved as it is sent,
and what is left is pinned. Drops and pins change system and developer messages only.

A move takes text out of the beginning of a conversation: the header messages before the first reply, and the first
user message, where some clients put their context. `with_moved` puts it back, marked, before the first user message:

    [ header without the text )[ user: <context> text </context> hello )[ assistant ) ···

A whole system message between the first user message and the first reply, such as Claude Code's list of skills, joins
the header. So the header is the same in every conversation, and one that goes on can keep the text that it began with.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from leftoff.chat.agent_texts import AGENT_TEXTS, LATE_HEADER
from leftoff.chat.conversation import Note
from leftoff.chat.template.render import MessageDict
from leftoff.config import AGENTS
from leftoff.lru import LruCache
from leftoff.types import HEADER_ROLES

_SEEN_CHARACTERS = 1 << 16  # of each text, so that a slow pattern is slow on little
_PINNED_CHARACTERS = 4096
_MOVED_CHARACTERS = 1 << 15
_MOVED_TEXTS = 32  # by one rule
_MARKED = "<context>\n{}\n</context>\n\n"
_REMEMBERED_PINS = 4096

_Rewrite = Callable[[str], str]


class RuleError(ValueError):
    """A pattern that cannot be used; raised when the server starts."""


class Applied(NamedTuple):
    """The messages after the rules, the texts that were moved out of them, and notes on what was changed."""

    messages: Sequence[MessageDict]
    moved: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True)
class _Rule:
    flag: str
    pattern: re.Pattern[str]

    def __str__(self) -> str:
        return f"{self.flag} '{self.pattern.pattern}'"

    def matches(self, text: str) -> list[re.Match[str]]:
        """The matches within the searched part of the text. One that the cut-off may have shortened is left out."""
        end = min(len(text), _SEEN_CHARACTERS)
        found = self.pattern.finditer(text, 0, end)
        return [match for match in found if match.group() and (match.end() < end or end == len(text))]


class Rules:
    """Applies the rules, and remembers the texts pinned most recently. Thread-safe."""

    def __init__(
        self,
        drop: Iterable[str] = (),
        pin: Iterable[str] = (),
        move: Sequence[str] = (),
        *,
        remembered: int = _REMEMBERED_PINS,
    ) -> None:
        self._drop = [_rule("--drop-header", pattern) for pattern in drop]
        self._move = [_rule("--move", pattern) for word in move for pattern in _patterns(word)]
        self._late = re.compile(LATE_HEADER) if AGENTS in move else None
        self._pin = [_rule("--pin", pattern) for pattern in pin]
        self._pinned: LruCache[tuple[str, str, str, int], str] = LruCache(max_entries=remembered)

    def apply(self, messages: Sequence[MessageDict], memory_key: str) -> Applied:
        """Pins are kept per `memory_key`, the namespace: no tenant gets text that another one sent."""
        ordered = _with_late_header(messages, self._late)
        changes = _Changes(memory_key, {rule: [] for rule in self._move})
        kept = [message for message in self._ruled(ordered.messages, changes) if message is not None]
        texts = tuple(text for of_rule in changes.moved.values() for text in of_rule)
        if num_moved := len(texts) + ordered.num_late:
            changes.notes.append(Note("moved", f"moved {_count(num_moved, 'text')}"))
        return Applied(kept, texts, tuple(changes.notes))

    def _ruled(self, messages: Sequence[MessageDict], changes: "_Changes") -> Iterator[MessageDict | None]:
        first_user, first_reply = _first(messages, "user"), _first(messages, "assistant")
        last_moving = first_reply if first_user < len(messages) else -1  # without a user, there is no place to move to
        for index, message in enumerate(messages):
            if message.get("role") in HEADER_ROLES:
                yield _rewritten(message, partial(self._in_header, changes=changes, moves=index < last_moving))
            elif index == first_user:
                yield _rewritten(message, changes.without_moves) or {**message, "content": ""}
            else:
                yield message

    def _in_header(self, text: str, changes: "_Changes", *, moves: bool) -> str:
        for rule in self._drop:
            text = changes.without_drops(text, rule)
        if moves:
            text = changes.without_moves(text)
        for rule in self._pin:
            text = self._with_pins(text, rule, changes)
        return text

    def _with_pins(self, text: str, rule: _Rule, changes: "_Changes") -> str:
        """Replaces each match by the first one seen for this namespace, rule, surrounding text and index."""
        matches = [match for match in rule.matches(text) if len(match.group()) <= _PINNED_CHARACTERS]
        if not matches:
            return text
        around = hashlib.sha256(_replaced(text, matches, [""] * len(matches)).encode()).hexdigest()
        pins = [
            self._pinned.put_if_absent((changes.memory_key, rule.pattern.pattern, around, number), match.group())
            for number, match in enumerate(matches)
        ]
        changed = sum(pin != match.group() for pin, match in zip(pins, matches, strict=True))
        if changed:
            changes.notes.append(Note("pinned", f"pinned {_count(changed, 'text')} of the header ({rule})"))
        return _replaced(text, matches, pins)


@dataclass
class _Changes:
    """Changes that the rules have made to one conversation so far. Texts are moved in the order of their rules."""

    memory_key: str
    moved: dict[_Rule, list[str]]
    notes: list[Note] = field(default_factory=list)

    def without_drops(self, text: str, rule: _Rule) -> str:
        if matches := rule.matches(text):
            self.notes.append(Note("dropped", f"dropped {_count(len(matches), 'line')} of the header ({rule})"))
        return _replaced(text, matches, [""] * len(matches))

    def without_moves(self, text: str) -> str:
        """Removes the matches of all move rules. One that is too long, or one too many, stays where it is."""
        for rule, texts in self.moved.items():
            matches = [match for match in rule.matches(text) if match.group().strip()]
            matches = [match for match in matches if len(match.group()) <= _MOVED_CHARACTERS]
            matches = matches[: _MOVED_TEXTS - len(texts)]
            texts += [match.group() for match in matches]
            text = _replaced(text, matches, [""] * len(matches))
        return text


def _patterns(word: str) -> list[str]:
    return [text.pattern for text in AGENT_TEXTS] if word == AGENTS else [word]


def _rule(flag: str, pattern: str) -> _Rule:
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise RuleError(f"{flag} '{pattern}' is not a regular expression: {error}") from error
    if compiled.match(""):
        raise RuleError(f"{flag} '{pattern}' matches the empty text: it would match everywhere")
    return _Rule(flag, compiled)


def with_moved(messages: Sequence[MessageDict], texts: Sequence[str]) -> Sequence[MessageDict]:
    """Puts moved texts, marked, before the first user message. Without a user message there were none to move."""
    at = _first(messages, "user")
    if not texts or at == len(messages):
        return messages
    content, text = messages[at].get("content"), _MARKED.format("\n\n".join(text.strip() for text in texts))
    begun = [{"type": "text", "text": text}, *content] if isinstance(content, list) else text + (content or "")
    return [*messages[:at], {**messages[at], "content": begun}, *messages[at + 1 :]]


def _first(messages: Sequence[MessageDict], role: str) -> int:
    """The index of the first message of this role; the number of messages if there is none."""
    return next((index for index, message in enumerate(messages) if message.get("role") == role), len(messages))


class _Ordered(NamedTuple):
    messages: Sequence[MessageDict]
    num_late: int


def _with_late_header(messages: Sequence[MessageDict], pattern: re.Pattern[str] | None) -> _Ordered:
    """Puts system messages that stand between the first user message and the first reply, and match, before both."""
    if pattern is None:
        return _Ordered(messages, 0)
    begins, ends = _first(messages, "user"), _first(messages, "assistant")
    late = [message for message in messages[begins:ends] if _matches(message, pattern)]
    others = [message for message in messages[begins:ends] if not _matches(message, pattern)]
    ordered = [*messages[:begins], *late, *others, *messages[ends:]] if late else messages
    return _Ordered(ordered, len(late))


def _matches(message: MessageDict, pattern: re.Pattern[str]) -> bool:
    content = message.get("content")
    return message.get("role") in HEADER_ROLES and isinstance(content, str) and bool(pattern.match(content))


def _replaced(text: str, matches: Sequence[re.Match[str]], by: Sequence[str]) -> str:
    pieces, end = [], 0
    for match, replacement in zip(matches, by, strict=True):
        pieces += [text[end : match.start()], replacement]
        end = match.end()
    return "".join([*pieces, text[end:]])


def _rewritten(message: MessageDict, rewrite: _Rewrite) -> MessageDict | None:
    """The message after `rewrite`; None if its text is all gone."""
    content = message.get("content")
    if isinstance(content, str):
        text = rewrite(content)
        return message if text == content else {**message, "content": text} if text.strip() else None
    if not isinstance(content, list):
        return message
    parts = [part for part in (_rewritten_part(part, rewrite) for part in content) if part is not None]
    return message if parts == content else {**message, "content": parts} if parts else None


def _rewritten_part(part: Any, rewrite: _Rewrite) -> Any:  # noqa: ANN401
    if not isinstance(part, Mapping) or not isinstance(part.get("text"), str):
        return part
    text = rewrite(part["text"])
    return part if text == part["text"] else {**part, "text": text} if text.strip() else None


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
