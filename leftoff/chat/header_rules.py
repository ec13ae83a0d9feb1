"""Rules that keep the header stable where clients change its text: a billing line, the date, the state of a repository.

One changed word at the top of a system prompt invalidates every token after it. A rule drops such text, moves it behind
the header, or pins it to the text that was seen first. They apply in this order, so that text is moved as it is sent,
and what is left is pinned. Drops and pins change system and developer messages only.

A move takes text out of the beginning of a conversation: the header messages before the first reply, and the first
user message, where some clients put their context. `with_moved` puts it back, marked, before the first words of the
user, behind the reminders that clients write there, such as the rules of a project:

    [ header without the text )[ user: reminders <context> text </context> hello )[ assistant ) ···

A whole system message behind a user message, such as Claude Code's list of skills, joins the header, and reminders that
compaction has put behind its summary stand before it again. So conversations begin alike, and one that goes on can
keep the text that it began with.
"""

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from leftoff.chat.agent_texts import AGENT_TEXTS, LATE_SECTIONS, AgentText
from leftoff.chat.conversation import Note
from leftoff.chat.late_header import LateHeader, Ordered, end_of_reminders, first_of
from leftoff.chat.template.render import MessageDict
from leftoff.chat.work import checkpoint
from leftoff.config import AGENTS
from leftoff.lru import LruCache
from leftoff.types import HEADER_ROLES, header_size
from leftoff.units import counted

_SEEN_CHARACTERS = 1 << 16  # of each text, so that a slow pattern is slow on little
_PINNED_CHARACTERS = 4096
_MOVED_CHARACTERS = 1 << 15
_MOVED_TEXTS = 32  # by one rule
_SECONDS = 0.5  # of computing, for all texts of a conversation; usual headers take a few milliseconds
_TOO_SLOW = Note("rules stopped", f"rules stopped: the header took them more than {_SECONDS} s")
MOVED = "<context>\n"  # before the moved texts
_MARKED = MOVED + "{}\n</context>\n\n"
_END_OF_MARK = re.compile(r"<(?=/context>)", re.IGNORECASE)  # in a text that is moved: it would end the mark
_REMEMBERED_PINS = 4096

_Rewrite = Callable[[str], str]


class RuleError(ValueError):
    """A pattern that cannot be used; raised when the server starts."""


class Applied(NamedTuple):
    """The messages after the rules, the texts that were moved out of them, and notes on what was changed.

    `followed` are those of the texts that stood in a later user message than the first: the last of each rule.
    """

    messages: Sequence[MessageDict]
    moved: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    followed: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Rule:
    flag: str
    pattern: re.Pattern[str]
    follows: bool

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
        self._move = [_rule("--move", text.pattern, text.follows) for word in move for text in _texts(word)]
        self._late = LateHeader(LATE_SECTIONS) if AGENTS in move else None
        self._pin = [_rule("--pin", pattern) for pattern in pin]
        self._pinned: LruCache[tuple[str, str, str, int], str] = LruCache(max_entries=remembered)

    def apply(self, messages: Sequence[MessageDict], memory_key: str) -> Applied:
        """Pins are kept per `memory_key`, the namespace: no tenant gets text that another one sent."""
        ordered = self._late.put_first(messages) if self._late is not None else Ordered(messages, 0)
        changes = _Changes(memory_key, {rule: [] for rule in self._move}, ordered.num_late)
        kept = [message for message in self._ruled(ordered.messages, changes) if message is not None]
        texts = tuple(text for of_rule in changes.moved.values() for text in of_rule)
        if num_moved := len(texts) + changes.num_late:
            changes.notes.append(Note("moved", f"moved {counted(num_moved, 'text')}"))
        return Applied(kept, texts, tuple(changes.notes), tuple(changes.followed.values()))

    def forget(self, is_meant: Callable[[str], bool]) -> None:
        """Forgets the texts that were pinned for the memory keys that are meant."""
        for key in [key for key, _ in self._pinned.items() if is_meant(key[0])]:
            self._pinned.pop(key)

    def _ruled(self, messages: Sequence[MessageDict], changes: "_Changes") -> Iterator[MessageDict | None]:
        first_user, first_reply = first_of(messages, "user"), first_of(messages, "assistant")
        last_moving = first_reply if first_user < len(messages) else -1  # without a user, there is no place to move to
        for index, message in enumerate(messages):
            if message.get("role") in HEADER_ROLES:
                yield _rewritten(message, partial(self._in_header, changes=changes, moves=index < last_moving))
            elif index == first_user:
                yield _rewritten(message, changes.without_moves) or {**message, "content": ""}
            elif message.get("role") == "user":
                yield _rewritten(message, changes.without_followers) or {**message, "content": ""}
            else:
                yield message

    def _in_header(self, text: str, changes: "_Changes", *, moves: bool) -> str:
        for rule in self._drop:
            text = changes.without_drops(text, rule)
        if moves:
            text = changes.without_moves(text)
            text = self._late.in_order(text) if self._late is not None and changes.num_late else text
        for rule in self._pin:
            text = self._with_pins(text, rule, changes)
        return text

    def _with_pins(self, text: str, rule: _Rule, changes: "_Changes") -> str:
        """Replaces each match by the first one seen for this namespace, rule, surrounding text and index."""
        matches = [match for match in changes.matches(rule, text) if len(match.group()) <= _PINNED_CHARACTERS]
        if not matches:
            return text
        around = hashlib.sha256(_replaced(text, matches, [""] * len(matches)).encode()).hexdigest()
        pins = [
            self._pinned.put_if_absent((changes.memory_key, rule.pattern.pattern, around, number), match.group())
            for number, match in enumerate(matches)
        ]
        changed = sum(pin != match.group() for pin, match in zip(pins, matches, strict=True))
        if changed:
            changes.notes.append(Note("pinned", f"pinned {counted(changed, 'text')} of the header ({rule})"))
        return _replaced(text, matches, pins)


@dataclass
class _Changes:
    """Changes that the rules have made to one conversation so far. Texts are moved in the order of their rules."""

    memory_key: str
    moved: dict[_Rule, list[str]]
    num_late: int  # messages that have joined the header
    notes: list[Note] = field(default_factory=list)
    followed: dict[_Rule, str] = field(default_factory=dict)
    end: float = field(default_factory=lambda: time.thread_time() + _SECONDS)

    def matches(self, rule: _Rule, text: str) -> list[re.Match[str]]:
        """The matches of a rule, while there is time left for this conversation: hostile texts make patterns slow."""
        checkpoint()
        if time.thread_time() < self.end:
            return rule.matches(text)
        if _TOO_SLOW not in self.notes:
            self.notes.append(_TOO_SLOW)
        return []

    def without_drops(self, text: str, rule: _Rule) -> str:
        if matches := self.matches(rule, text):
            self.notes.append(Note("dropped", f"dropped {counted(len(matches), 'line')} of the header ({rule})"))
        return _replaced(text, matches, [""] * len(matches))

    def without_moves(self, text: str) -> str:
        """Removes the matches of all move rules. One that is too long, or one too many, stays where it is."""
        for rule, texts in self.moved.items():
            matches = [match for match in self.matches(rule, text) if match.group().strip()]
            matches = [match for match in matches if len(match.group()) <= _MOVED_CHARACTERS]
            matches = matches[: _MOVED_TEXTS - len(texts)]
            texts += [match.group() for match in matches]
            text = _replaced(text, matches, [""] * len(matches))
        return text

    def without_followers(self, text: str) -> str:
        """Removes what the client takes along to each new message. It is moved if the first message has none."""
        for rule, texts in self.moved.items():
            match = rule.pattern.match(text) if rule.follows else None
            if match is not None:
                texts.extend([] if texts else [match.group()])
                self.followed[rule] = match.group()
                text = text[match.end() :]
        return text


def _texts(word: str) -> Sequence[AgentText]:
    return AGENT_TEXTS if word == AGENTS else [AgentText("", "", word)]


def _rule(flag: str, pattern: str, follows: bool = False) -> _Rule:
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise RuleError(f"{flag} '{pattern}' is not a regular expression: {error}") from error
    if compiled.match(""):
        raise RuleError(f"{flag} '{pattern}' matches the empty text: it would match everywhere")
    return _Rule(flag, compiled, follows)


def with_moved(
    messages: Sequence[MessageDict], texts: Sequence[str], followed: Sequence[str] = ()
) -> Sequence[MessageDict]:
    """Puts moved texts, marked, before the user's first words, and those that `followed` and are news before the last.

    Without a user message there were none to move.
    """
    at = first_of(messages, "user")
    if at == len(messages):
        return messages
    shown = [*messages]
    if texts:
        moved = "\n\n".join(_END_OF_MARK.sub("&lt;", text.strip()) for text in texts)
        shown[at] = _with_block(shown[at], _MARKED.format(moved))
    if news := [text for text in followed if text not in texts]:
        last = max(index for index, message in enumerate(shown) if message.get("role") == "user")
        shown[last] = _with_block(shown[last], "".join(news))
    return shown


def _with_block(message: MessageDict, block: str) -> MessageDict:
    """The message with a text before the user's words: behind the reminders that it begins with."""
    content = message.get("content")
    if not isinstance(content, list):
        content = content or ""
        start = end_of_reminders(content)
        return {**message, "content": content[:start] + block + content[start:]}
    others = (index for index, part in enumerate(content) if not _is_reminder(part))
    start = next(others, len(content))
    return {**message, "content": [*content[:start], {"type": "text", "text": block}, *content[start:]]}


def _is_reminder(part: Any) -> bool:  # noqa: ANN401
    text = part.get("text") if isinstance(part, Mapping) else None
    return isinstance(text, str) and end_of_reminders(text) == len(text)


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


def header_texts(messages: Sequence[MessageDict]) -> tuple[str, ...]:
    """The texts of the system messages that a conversation begins with: one for each message, or part of one."""
    texts: list[str] = []

    def read(text: str) -> str:
        texts.append(text)
        return text

    for message in messages[: header_size(messages)]:
        _rewritten(message, read)
    return tuple(texts)


def with_header_texts(messages: Sequence[MessageDict], texts: Iterable[str]) -> list[MessageDict]:
    """The messages with other texts in place of these."""
    size, others = header_size(messages), iter(texts)
    header = [_rewritten(message, lambda _: next(others)) for message in messages[:size]]
    return [*(message for message in header if message is not None), *messages[size:]]
