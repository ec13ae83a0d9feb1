"""Rules that keep the header stable where clients change its text on every request: a billing line, the time, an id.

One changed word at the top of a system prompt invalidates every token after it. A rule drops such text, or pins it to
the text that was seen first. Only system and developer messages are changed, never those of the user.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from leftoff.chat.conversation import Note
from leftoff.chat.template.render import MessageDict
from leftoff.lru import LruCache
from leftoff.types import HEADER_ROLES

_SEEN_CHARACTERS = 1 << 16  # of each text, so that a slow pattern is slow on little
_PINNED_CHARACTERS = 4096
_REMEMBERED_PINS = 4096

_Rewrite = Callable[[str], str]


class RuleError(ValueError):
    """A pattern that cannot be used; raised when the server starts."""


class Applied(NamedTuple):
    """The messages after the rules, and notes on what was changed."""

    messages: Sequence[MessageDict]
    notes: tuple[Note, ...]


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
        self, drop: Iterable[str] = (), pin: Iterable[str] = (), *, remembered: int = _REMEMBERED_PINS
    ) -> None:
        self._drop = [_rule("--drop-header", pattern) for pattern in drop]
        self._pin = [_rule("--pin", pattern) for pattern in pin]
        self._pinned: LruCache[tuple[str, str, str, int], str] = LruCache(max_entries=remembered)

    @property
    def num_pinned(self) -> int:
        return len(self._pinned)

    def apply(self, messages: Sequence[MessageDict], memory_key: str) -> Applied:
        """Pins are kept per `memory_key`, the namespace: no tenant gets text that another one sent."""
        notes: list[Note] = []

        def rewrite(text: str) -> str:
            for rule in self._drop:
                text = _dropped(text, rule, notes)
            for rule in self._pin:
                text = self._with_pins(text, rule, memory_key, notes)
            return text

        ruled = [_rewritten(message, rewrite) for message in messages]
        return Applied([message for message in ruled if message is not None], tuple(notes))

    def _with_pins(self, text: str, rule: _Rule, memory_key: str, notes: list[Note]) -> str:
        """Replaces each match by the first one seen for this namespace, rule, surrounding text and index."""
        matches = [match for match in rule.matches(text) if len(match.group()) <= _PINNED_CHARACTERS]
        if not matches:
            return text
        around = hashlib.sha256(_replaced(text, matches, [""] * len(matches)).encode()).hexdigest()
        pins = [
            self._pinned.put_if_absent((memory_key, rule.pattern.pattern, around, number), match.group())
            for number, match in enumerate(matches)
        ]
        changed = sum(pin != match.group() for pin, match in zip(pins, matches, strict=True))
        if changed:
            notes.append(Note("pinned", f"pinned {_count(changed, 'text')} of the header ({rule})"))
        return _replaced(text, matches, pins)


def _rule(flag: str, pattern: str) -> _Rule:
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise RuleError(f"{flag} '{pattern}' is not a regular expression: {error}") from error
    if compiled.match(""):
        raise RuleError(f"{flag} '{pattern}' matches the empty text: it would match everywhere")
    return _Rule(flag, compiled)


def _dropped(text: str, rule: _Rule, notes: list[Note]) -> str:
    matches = rule.matches(text)
    if not matches:
        return text
    notes.append(Note("dropped", f"dropped {_count(len(matches), 'line')} of the header ({rule})"))
    return _replaced(text, matches, [""] * len(matches))


def _replaced(text: str, matches: Sequence[re.Match[str]], by: Sequence[str]) -> str:
    pieces, end = [], 0
    for match, replacement in zip(matches, by, strict=True):
        pieces += [text[end : match.start()], replacement]
        end = match.end()
    return "".join([*pieces, text[end:]])


def _rewritten(message: MessageDict, rewrite: _Rewrite) -> MessageDict | None:
    """The message after `rewrite`; None if its text is all gone."""
    content = message.get("content")
    if message.get("role") not in HEADER_ROLES or not content:
        return message
    if isinstance(content, str):
        text = rewrite(content)
        return {**message, "content": text} if text.strip() else None
    if not isinstance(content, list):
        return message
    parts = [part for part in (_rewritten_part(part, rewrite) for part in content) if part is not None]
    return {**message, "content": parts} if parts else None


def _rewritten_part(part: Any, rewrite: _Rewrite) -> Any:  # noqa: ANN401
    if not isinstance(part, Mapping) or not isinstance(part.get("text"), str):
        return part
    text = rewrite(part["text"])
    return {**part, "text": text} if text.strip() else None


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
