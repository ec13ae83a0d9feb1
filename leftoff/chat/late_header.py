"""Moves the parts of a header that agents send late to the beginning of the conversation.

These are system messages behind a user message, such as Claude Code's list of skills, and the reminders that
compaction has put behind its summary.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from leftoff.chat.agent_texts import FIRST_REMINDERS
from leftoff.chat.template.render import MessageDict
from leftoff.types import HEADER_ROLES

_REMINDERS = re.compile(r"(?:\s*<system-reminder>[\s\S]*?</system-reminder>)+\s*")
_REMINDS_FIRST = re.compile(FIRST_REMINDERS)


class Ordered(NamedTuple):
    """The messages in their order, and how many of them have joined the header."""

    messages: Sequence[MessageDict]
    num_late: int


class LateHeader:
    """Puts what a conversation should begin with in its place: before the first user message, or its first words.

    These are system messages that begin with one of the sections, and the first reminders.
    """

    def __init__(self, sections: Sequence[str]) -> None:
        self._sections = [re.compile(section) for section in sections]
        self._any = re.compile(r"(?:\A|(?<=\n\n))(?:" + "|".join(sections) + ")")

    def put_first(self, messages: Sequence[MessageDict]) -> Ordered:
        """Moves what matches before the first reply; if nothing does, the first message that has the last section.

        One that comes later in a conversation tells what has changed since, and stays there.
        """
        messages = _with_reminders_first(messages)
        begins, ends = first_of(messages, "user"), first_of(messages, "assistant")
        found = [index for index in range(begins, len(messages)) if self._begins(messages[index])]
        late = [index for index in found if index < ends]
        late = late or [index for index in found if self._sections[-1].search(messages[index]["content"])][:1]
        if not late:
            return Ordered(messages, 0)
        others = [message for index, message in enumerate(messages) if index >= begins and index not in late]
        return Ordered([*messages[:begins], *(messages[index] for index in late), *others], len(late))

    def in_order(self, text: str) -> str:
        """A text that begins with a section, with its sections in order."""
        starts = [match.start() for match in self._any.finditer(text)]
        if len(starts) < 2 or starts[0]:
            return text
        parts = [text[start:end].rstrip() for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]
        return "\n\n".join(sorted(parts, key=self._place))

    def _begins(self, message: MessageDict) -> bool:
        content = message.get("content")
        return message.get("role") in HEADER_ROLES and isinstance(content, str) and bool(self._any.match(content))

    def _place(self, part: str) -> int:
        return next(place for place, section in enumerate(self._sections) if section.match(part + "\n"))


def _with_reminders_first(messages: Sequence[MessageDict]) -> Sequence[MessageDict]:
    """Puts the reminders of the first message that begins with such ones before the user's first words."""
    users = [index for index, message in enumerate(messages) if message.get("role") == "user"]
    texts = {index: text for index in users if isinstance(text := messages[index].get("content"), str)}
    found = next((index for index, text in texts.items() if _REMINDS_FIRST.match(text)), None)
    if found is None or found == users[0] or users[0] not in texts:
        return messages
    shown, end = [*messages], end_of_reminders(texts[found])
    shown[users[0]] = {**messages[users[0]], "content": texts[found][:end] + texts[users[0]]}
    shown[found] = {**messages[found], "content": texts[found][end:]}
    return shown


def end_of_reminders(text: str) -> int:
    """The length of the reminders that a text begins with."""
    found = _REMINDERS.match(text)
    return found.end() if found else 0


def first_of(messages: Sequence[MessageDict], role: str) -> int:
    """The index of the first message of this role; the number of messages if there is none."""
    return next((index for index, message in enumerate(messages) if message.get("role") == role), len(messages))
