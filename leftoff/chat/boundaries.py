"""Finds where each message begins in the rendered text, for any template.

Every message's content gets a mark that no text contains; where the marks come out is where the messages are. A
template that looks at its content so closely that the marks change anything else is found out, because without them
the text must be the same; then positions are found by changing one content at a time and looking for the first
difference.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from leftoff.chat.template import MessageDict, TemplateError

MARK = "\U000f5a5a"  # of the private use area

Render = Callable[[Sequence[MessageDict], bool], str]


@dataclass(frozen=True)
class TextSpan:
    """Characters [start, end) of the rendered text: from the message's own words to those of the next."""

    role: str
    start: int
    end: int


@dataclass(frozen=True)
class Rendered:
    text: str
    spans: tuple[TextSpan, ...]


def render_with_spans(messages: Sequence[MessageDict], render: Render) -> Rendered:
    """The whole prompt, and the messages in it. `render` takes messages and whether to add the generation prompt."""
    text = render(messages, True)
    marked = _try(render, [_marked(message) for message in messages])
    starts = _mark_positions(marked, messages) if marked is not None else None
    if marked is not None and starts is not None and text.startswith(unmarked := marked.replace(MARK, "")):
        return Rendered(text, _spans(starts, len(unmarked)))
    return Rendered(text, _spans(_first_differences(text, messages, render), _messages_end(text, messages, render)))


def _marked(message: MessageDict) -> MessageDict:
    content = message.get("content")
    if not isinstance(content, str) or not content:
        return message
    return {**message, "content": MARK + content}


def _mark_positions(marked: str, messages: Sequence[MessageDict]) -> list[tuple[str, int]] | None:
    """Role and position of every marked message, or None if some mark was lost or doubled."""
    roles = [str(message.get("role")) for message in messages if _marked(message) is not message]
    pieces = marked.split(MARK)
    if len(pieces) != len(roles) + 1:
        return None
    positions, position = [], 0
    for piece in pieces[:-1]:
        position += len(piece)
        positions.append(position)
    return list(zip(roles, positions, strict=True))


def _first_differences(text: str, messages: Sequence[MessageDict], render: Render) -> list[tuple[str, int]]:
    """Only what placement needs: the first message after the header, and the last of the user."""
    roles = [str(message.get("role")) for message in messages]
    first = next((i for i, role in enumerate(roles) if role not in ("system", "developer")), None)
    last = next((i for i in reversed(range(len(roles))) if roles[i] == "user"), None)
    found = []
    for index in sorted({i for i in (first, last) if i is not None}):
        other = _try(render, _with_content(messages, index, MARK), add_generation_prompt=True)
        if other is not None:
            found.append((roles[index], _common(text, other)))
    return found


def _messages_end(text: str, messages: Sequence[MessageDict], render: Render) -> int:
    without = _try(render, messages)
    return _common(text, without) if without is not None else len(text)


def _common(left: str, right: str) -> int:
    """How many characters two texts share at their beginning."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((index for index, (first, second) in pairs if first != second), min(len(left), len(right)))


def _with_content(messages: Sequence[MessageDict], index: int, content: str) -> list[MessageDict]:
    changed: list[MessageDict] = list(messages)
    changed[index] = {**messages[index], "content": content}
    return changed


def _try(render: Render, messages: Sequence[MessageDict], add_generation_prompt: bool = False) -> str | None:
    try:
        return render(messages, add_generation_prompt)
    except TemplateError:
        return None


def _spans(starts: Sequence[tuple[str, int]], end: int) -> tuple[TextSpan, ...]:
    ends: list[Any] = [*(start for _, start in starts[1:]), end]
    return tuple(TextSpan(role, start, stop) for (role, start), stop in zip(starts, ends, strict=True))
