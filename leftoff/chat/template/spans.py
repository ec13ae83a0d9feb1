"""Finds where each message begins in the rendered text, for any template.

A second rendering has marks, which occur in no text, at the beginning of each message's reasoning, content and names of
tools. A message begins where its first mark comes out. Some templates look at contents so closely that marks change
more than themselves: without the marks, the text then differs. For those, a mark is put in the middle of each content;
and if that changes the text as well, one content at a time is replaced to see where the text begins to differ.

A turn that goes on from one rendered before keeps the spans that both have. Marks are then put only into a short
conversation, of the header and the last messages, if its text ends as the whole one does.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from leftoff.chat.template.render import MessageDict, TemplateError, TemplateLimitError
from leftoff.types import KnownTokens, common_length, header_size

MARK = "\U000f5a5a"  # from a private use area; the next character is the number of the message
_FIRST_NUMBER, _MAX_NUMBERS = 0x100000, 0xFFFE
_ANY_MARK = re.compile(f"{MARK}[\U00100000-\U0010fffd]")
_INSIDE_WORD = re.compile(r"(?<=\w)(?=\w)")

Render = Callable[[Sequence[MessageDict], bool], str]
Marker = Callable[[MessageDict, str], MessageDict]


@dataclass(frozen=True)
class TextSpan:
    """Characters [start, end) of the rendered text, from the text of one message to that of the next."""

    role: str
    start: int
    end: int
    index: int


@dataclass(frozen=True)
class Rendered:
    """The whole prompt, and its messages in the order in which they appear; those without text do not."""

    text: str
    spans: tuple[TextSpan, ...]
    known: tuple[KnownTokens, ...] = ()  # of the replies that stand in it as the model wrote them


@dataclass(frozen=True)
class RenderedMessages:
    """Messages as a template was given them, and the text that came of them."""

    messages: Sequence[MessageDict]
    result: Rendered


NO_MESSAGES = RenderedMessages((), Rendered("", ()))


@dataclass(frozen=True)
class _Found:
    starts: dict[int, int]  # by the message's index
    end: int


def render_with_spans(
    messages: Sequence[MessageDict],
    render: Render,
    check: Callable[[str], None] | None = None,
    last: RenderedMessages = NO_MESSAGES,
) -> Rendered:
    """`render` takes messages and whether to add the generation prompt; `check` may raise, to refuse the text."""
    text = render(messages, True)
    if check is not None:
        check(text)
    grown = _by_last_turn(text, messages, render, last)
    if grown is not None:
        return Rendered(text, grown)
    found = _by_any_marks(text, messages, render) or _by_differences(text, messages, render)
    return Rendered(text, _spans(found, messages))


def _by_last_turn(
    text: str, messages: Sequence[MessageDict], render: Render, last: RenderedMessages
) -> tuple[TextSpan, ...] | None:
    """Takes the spans of the last turn up to a message that both turns have, the others from a short conversation.

        last:   [ header )[ ··· )[ anchor )[ opening )
        whole:  [ header )[ ··· )[ anchor )[ new ···· )[ opening )
        short:  [ header )       [ anchor )[ new ···· )[ opening )

    None unless the short text ends as the whole one does, from the beginning of the anchor on.
    """
    common = common_length(text, last.result.text)
    num_same = num_equal(messages, last.messages)
    kept = [span for span in last.result.spans if span.start <= common and span.index < num_same]
    while kept and kept[-1].role not in ("user", "assistant"):
        kept.pop()
    if not kept or any(one.index >= other.index for one, other in pairwise(kept)):
        return None
    anchor = kept.pop()
    before = [*messages[: header_size(messages)], *_question(messages, anchor)]
    if len(before) >= anchor.index:
        return None  # it is as short as it can be
    short = [*before, *messages[anchor.index :]]
    end = _try(render, short, True)
    found = _by_any_marks(end, short, render) if end is not None else None
    if end is None or found is None:
        return None
    shift, moved = len(text) - len(end), anchor.index - len(before)
    tail = [
        TextSpan(span.role, span.start + shift, span.end + shift, span.index + moved)
        for span in _spans(found, short)
        if span.start + shift >= anchor.start
    ]
    indices = [span.index for span in tail]
    is_same = bool(tail) and tail[0].start == anchor.start and indices[0] == anchor.index == min(indices)
    return (*kept, *tail) if is_same and text.endswith(end[anchor.start - shift :]) else None


def num_equal(left: Sequence[MessageDict], right: Sequence[MessageDict]) -> int:
    """How many messages both begin with."""
    size = min(len(left), len(right))
    return next((index for index in range(size) if left[index] != right[index]), size)


def _question(messages: Sequence[MessageDict], anchor: TextSpan) -> list[MessageDict]:
    """The question that a reply answers: templates want one before it."""
    last = _last_user(messages[: anchor.index]) if anchor.role != "user" else None
    return [messages[last]] if last is not None else []


def _by_any_marks(text: str, messages: Sequence[MessageDict], render: Render) -> _Found | None:
    found = _by_marks(text, messages, render, _mark_beginnings)
    return found or _by_marks(text, messages, render, _mark_middle)


def _by_marks(text: str, messages: Sequence[MessageDict], render: Render, marker: Marker) -> _Found | None:
    """Finds messages by their marks; None if these change more than themselves, or cannot be assigned to messages."""
    numbers = _numbers(messages)
    if len(messages) > _MAX_NUMBERS:
        return None
    marked = [
        marker(message, MARK + chr(_FIRST_NUMBER + number)) for message, number in zip(messages, numbers, strict=True)
    ]
    for generation_prompt in (False, True):
        rendered = _try(render, marked, generation_prompt)
        unmarked = _ANY_MARK.sub("", rendered or "")
        if rendered is None or not text.startswith(unmarked):
            continue
        starts = _starts(rendered, numbers)
        if starts is None:
            return None
        if marker is _mark_middle:
            starts = _moved_back(text, messages, starts)
        return _Found(starts, _messages_end(text, messages, render) if generation_prompt else len(unmarked))
    return None


def _numbers(messages: Sequence[MessageDict]) -> list[int]:
    """Equal messages get equal numbers, since templates compare messages."""
    first: dict[str, int] = {}
    return [first.setdefault(repr(message), index) for index, message in enumerate(messages)]


def _starts(marked: str, numbers: list[int]) -> dict[int, int] | None:
    """Positions of each message's first mark. Equal messages divide their marks among them, in order."""
    places: dict[int, list[int]] = defaultdict(list)
    for taken, match in enumerate(_ANY_MARK.finditer(marked)):
        places[ord(match.group()[1]) - _FIRST_NUMBER].append(match.start() - 2 * taken)
    equal: dict[int, list[int]] = defaultdict(list)
    for index, number in enumerate(numbers):
        equal[number].append(index)
    starts: dict[int, int] = {}
    for number, found in places.items():
        members = equal.get(number)
        if not members or len(found) % len(members):
            return None
        starts.update(zip(members, found[:: len(found) // len(members)], strict=True))
    return starts


def _mark_beginnings(message: MessageDict, mark: str) -> MessageDict:
    changed = dict(message)
    for field in ("content", "reasoning_content", "thinking"):
        value = message.get(field)
        if isinstance(value, str) and value.strip():
            changed[field] = _with_marks(value, mark)
        elif isinstance(value, list):
            changed[field] = [_mark_part(part, mark) for part in value]
    if calls := message.get("tool_calls"):
        changed["tool_calls"] = [_mark_call(call, mark) for call in calls]
    return changed


def _with_marks(text: str, mark: str) -> str:
    """Marks the beginning, and both sides of the reasoning, where templates split. Marks go behind white space."""
    cuts = {0, text.find("<think>") + len("<think>"), text.rfind("</think>") + len("</think>")}
    known = sorted(cut for cut in cuts if cut == 0 or text[:cut].endswith("think>"))
    pieces = [text[start:end] for start, end in zip(known, [*known[1:], len(text)], strict=True)]
    return "".join(
        piece[: len(piece) - len(stripped)] + mark + stripped if (stripped := piece.lstrip()) else piece
        for piece in pieces
    )


def _mark_part(part: Any, mark: str) -> Any:  # noqa: ANN401
    return {**part, "text": mark + part["text"]} if isinstance(part, dict) and part.get("text") else part


def _mark_call(call: Any, mark: str) -> Any:  # noqa: ANN401
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not function.get("name"):
        return call
    return {**call, "function": {**function, "name": mark + str(function["name"])}}


def _mark_middle(message: MessageDict, mark: str) -> MessageDict:
    """Marks the inside of a word in the middle of a content, for templates that look at its beginning or end."""
    content = message.get("content")
    offset = _middle(content) if isinstance(content, str) else None
    if offset is None or not isinstance(content, str):
        return message
    return {**message, "content": content[:offset] + mark + content[offset:]}


def _middle(content: str) -> int | None:
    places = [match.start() for match in _INSIDE_WORD.finditer(content, 0, 4096)]
    return places[len(places) // 2] if places else None


def _moved_back(text: str, messages: Sequence[MessageDict], starts: dict[int, int]) -> dict[int, int]:
    """Moves starts from the middle of a content to its beginning, if the text contains it unchanged."""
    moved = {}
    for index, place in starts.items():
        content = str(messages[index].get("content"))
        before = content[: _middle(content)].lstrip()
        if text.endswith(before, 0, place):
            moved[index] = place - len(before)
    return moved


def _by_differences(text: str, messages: Sequence[MessageDict], render: Render) -> _Found:
    """Finds only what the placement of snapshots needs: the first message after the header, and the last user's."""
    first, last = header_size(messages), _last_user(messages)
    starts = {}
    for index in {i for i in (first, last) if i is not None and i < len(messages)}:
        changed = [{**m, "content": MARK} if i == index else m for i, m in enumerate(messages)]
        other = _try(render, changed, True)
        if other is not None and other != text:
            common = common_length(text, other)
            # A content may also change text in front of itself.
            starts[index] = max(common, text.find(str(messages[index].get("content")).strip(), common))
    return _Found(starts, _messages_end(text, messages, render))


def _messages_end(text: str, messages: Sequence[MessageDict], render: Render) -> int:
    """The start of the generation prompt, even if the template renders the last message differently without one."""
    without = _try(render, messages, False)
    if without is not None and text.startswith(without):
        return len(without)
    last = _last_user(messages)
    shorter = messages[: last + 1] if last is not None else messages
    with_prompt, without = _try(render, shorter, True), _try(render, shorter, False)
    if with_prompt and without and with_prompt.startswith(without) and text.endswith(with_prompt[len(without) :]):
        return len(text) - len(with_prompt) + len(without)
    return len(text)


def _last_user(messages: Sequence[MessageDict]) -> int | None:
    return next((i for i in reversed(range(len(messages))) if messages[i].get("role") == "user"), None)


def _try(render: Render, messages: Sequence[MessageDict], generation_prompt: bool) -> str | None:
    try:
        return render(messages, generation_prompt)
    except TemplateLimitError:
        raise  # the next rendering would be stopped as well, after as long
    except TemplateError:
        return None


def _spans(found: _Found, messages: Sequence[MessageDict]) -> tuple[TextSpan, ...]:
    ordered = sorted((start, index) for index, start in found.starts.items() if start <= found.end)
    ends = [*(start for start, _ in ordered[1:]), found.end] if ordered else []
    return tuple(
        TextSpan(str(messages[index].get("role")), start, end, index)
        for (start, index), end in zip(ordered, ends, strict=True)
    )
