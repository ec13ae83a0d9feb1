"""Explains where a prompt diverges from the cached one, from the text on both sides, and names a flag that helps.

All of it is guessed from the text, for the reuse report alone: nothing is decided by it.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from leftoff.config import BILLING_LINE

Difference = Literal["volatile header", "reasoning dropped", "re-rendered", "edited"]

_OPENS = re.compile(r"<think>|<\|channel\|?>(?:analysis|thought)\b|<seed:think>|\[THINK\]")
_CLOSES = re.compile(r"</think>|<channel\|>|<\|end\|>|</seed:think>|\[/THINK\]|<\|channel\|>(?:final|commentary)")
_LABEL_CHARACTERS = 48
_NEAR_CHARACTERS = 32  # in which a tag may have begun
_JSON_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?|true|false|null')


@dataclass(frozen=True)
class _Kind:
    """Text that changes by itself: its name, its pattern, and what to pin where no label stands before it."""

    name: str
    pattern: re.Pattern[str]
    pin: str


_CLOCK = r"\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?(?:\s?[AaPp][Mm])?(?:\s?(?:Z|UTC|GMT|[A-Z]{2,4}|[+-]\d\d:?\d\d))?"
_DAY = r"\d{4}[-/.]\d\d?[-/.]\d\d?|\d\d?[/.]\d\d?[/.]\d{2,4}"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?"
_NAMED_DAY = rf"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,?\s+)?(?:{_MONTH}\s+\d\d?,?|\d\d?\s+{_MONTH})(?:\s+\d{{4}})?"
_DATE_TIME = rf"(?:{_DAY}|{_NAMED_DAY})(?:[T ,]+(?:at\s+)?{_CLOCK})?|{_CLOCK}"
_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_HASH = r"\b(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{6,}\b"
_COUNTER = r"\b\d+(?:\.\d+)?\b"

_BILLING = _Kind("a billing line", re.compile(r"x-anthropic-billing-header:[^\n]*"), BILLING_LINE)
_DATE = _Kind("a date or time", re.compile(_DATE_TIME), _DATE_TIME)
_KINDS = (
    _BILLING,
    _Kind("an id", re.compile(_UUID), _UUID),
    _DATE,
    _Kind("a number", re.compile(_COUNTER), ""),
    _Kind("a hash", re.compile(_HASH), _HASH),
)

# Headings and tags over blocks that a program writes, of the state of a machine or a project.
_STATE = re.compile(
    r"(?i)(?<![a-z])(?:git|status|commits?|branch|files?|folders?|director(?:y|ies)|tree|structure|tabs|workspace|"
    r"env|environment|context|diagnostics|date|time|today|now)(?![a-z])"
)
_TAG = re.compile(r"<(/?)([A-Za-z][\w-]*)>")


def explain_difference(before: str, after: str, in_header: bool, shared: str) -> Difference:
    """Why the cached text `before` became `after`; `shared` is the end of their common prefix."""
    if in_header:
        return "volatile header" if suggest(before, after, shared) else "edited"
    if _lost_reasoning(before, after, shared):
        return "reasoning dropped"
    return "re-rendered" if _same_words(before, after, shared) else "edited"


def suggest(before_text: str, after_text: str, shared: str = "") -> str | None:
    """The flag that would drop, move or pin the changing text of a header, or None if it matches no known kind."""
    changes = [_changed(kind, before_text, after_text, shared) for kind in _KINDS]
    first = next(filter(None, changes), None)
    block = _block(shared)
    if first is not None and first.kind is _BILLING:
        return f"volatile header ({_BILLING.name}): --drop-header '{BILLING_LINE}' would drop it"
    if first is not None and first.kind is _DATE and first.label and not (block and not _STATE.search(first.label)):
        return _move(_DATE.name, _escaped(first.label) + first.shape)
    if block:
        return _move("a block", block)
    if first is None or not (first.label or first.kind.pin):
        return None
    pattern = rf"{_escaped(first.label)}[^\n]*" if first.label else first.kind.pin
    return f"volatile header ({first.kind.name}): --pin '{pattern}' would keep what it said first"


def _move(what: str, pattern: str) -> str:
    return f"volatile header ({what}): --move '{pattern}' would put it behind the header"


@dataclass(frozen=True)
class _Change:
    """Two texts of one kind in the same place. `label` is what stands before both on their line, if it has words.

    `shape` is a pattern that matches both, and the rest of the line where what follows changes too.
    """

    kind: _Kind
    label: str
    shape: str


def _changed(kind: _Kind, before_text: str, after_text: str, shared: str) -> _Change | None:
    old, new = (_touching(kind, shared, text) for text in (before_text, after_text))
    if old is None or new is None or old.group() == new.group():
        return None
    label = shared.rpartition("\n")[2][: min(old.start(), new.start())][-_LABEL_CHARACTERS:]
    shapes = {_shape(match.group()) for match in (old, new)}
    rests = [match.string[match.end() :].partition("\n")[0] for match in (old, new)]
    is_all = old.start() == new.start() and len(shapes) == 1 and _agree(*rests)
    return _Change(kind, label if any(map(str.isalpha, label)) else "", shapes.pop() if is_all else r"[^\n]*")


def _shape(text: str) -> str:
    """A pattern for texts with other numbers and words in the same order."""
    pieces = re.findall(r"\d+|[^\W\d]+|.", text, re.DOTALL)
    return "".join(r"\d+" if piece.isdigit() else r"\w+" if piece.isalpha() else _escaped(piece) for piece in pieces)


def _agree(one: str, other: str) -> bool:
    """Whether two texts are the same as far as both are known."""
    size = min(len(one), len(other))
    return one[:size] == other[:size]


def _block(shared: str) -> str | None:
    """A pattern for the block that the divergence is in, if its heading or tag says that a program writes it."""
    open_tags: list[str] = []
    for closes, name in _TAG.findall(shared):
        if not closes:
            open_tags.append(name)
        elif name in open_tags:
            del open_tags[open_tags.index(name) :]
    if open_tags and _STATE.search(open_tags[-1].replace("_", " ")):
        return rf"<{open_tags[-1]}>[\s\S]*?</{open_tags[-1]}>"
    above, _, paragraph = shared.rpartition("\n\n")
    heading, newline, _ = paragraph.partition("\n")
    is_heading = bool(above and newline) and (heading.endswith(":") or heading.startswith("#"))
    if is_heading and len(heading) <= _LABEL_CHARACTERS and _STATE.search(heading):
        return rf"{_escaped(heading)}\n(?:[^\n]+(?:\n|\Z))*"
    return None


def _touching(kind: _Kind, shared: str, text: str) -> re.Match[str] | None:
    """A match of this kind that spans the point of divergence or begins right behind it."""
    line = shared.rpartition("\n")[2]
    border = len(line)
    found = kind.pattern.finditer(line + text)
    return next((match for match in found if match.end() > border and match.start() <= border + 1), None)


def _escaped(words: str) -> str:
    """A pattern for these words that is safe inside single quotes."""
    return re.sub(r"\\?'", ".", re.sub(r"\\([ #&~:=<>/,;-])", r"\1", re.escape(words)))


def _lost_reasoning(before: str, after: str, shared: str) -> bool:
    if _is_inside(shared):
        return _closes_at_once(after) and not _closes_at_once(before)
    near = shared[-_NEAR_CHARACTERS:]
    begins, begins_now = (_begins_with_reasoning(near + text, len(near)) for text in (before, after))
    return (begins and not begins_now) or (_closes_first(before) and not _closes_first(after))


def _is_inside(shared: str) -> bool:
    opened = max((match.end() for match in _OPENS.finditer(shared)), default=-1)
    closed = max((match.end() for match in _CLOSES.finditer(shared)), default=-1)
    return opened > closed


def _begins_with_reasoning(text: str, border: int) -> bool:
    """Whether a block of reasoning opens at the divergence: its tag may begin before, or come after white space."""
    return any(match.end() > border and not text[border : match.start()].strip() for match in _OPENS.finditer(text))


def _closes_at_once(text: str) -> bool:
    return _CLOSES.match(text.lstrip()) is not None


def _closes_first(text: str) -> bool:
    """Whether the text begins inside a block of reasoning: it closes one that it did not open."""
    closed, opened = re.search(r"</think>|<channel\|>", text), _OPENS.search(text)
    return closed is not None and (opened is None or closed.start() < opened.start())


def _same_words(before: str, after: str, shared: str) -> bool:
    """Whether both say the same but for white space, or the same JSON but for the order of its keys."""
    old, new = ("".join(text.split()) for text in (before, after))
    shorter = min(len(old), len(new))
    if shorter and (old == new or (shorter >= 8 and old[:shorter] == new[:shorter])):
        return True
    return _same_json(_json_in(shared, before), _json_in(shared, after))


def _json_in(shared: str, text: str) -> str:
    """The JSON object that contains the divergence, as far as its text is known."""
    line = shared[max(shared.rfind("\n"), shared.rfind("<tool_call>")) + 1 :]
    start = line.find("{")
    return (line[start:] if start >= 0 else "") + text


def _same_json(old: str, new: str) -> bool:
    if not all(re.search(r'["{]', text) and ":" in text for text in (old, new)):
        return False
    parsed = [_parsed(text) for text in (old, new)]
    if None not in parsed:
        return parsed[0] == parsed[1]
    # Cut off: then most of the shorter one's words are in the other.
    few, many = sorted((Counter(_JSON_WORD.findall(text)) for text in (old, new)), key=Counter.total)
    return few.total() >= 4 and (few & many).total() >= 0.75 * few.total()


def _parsed(text: str) -> object:
    start = text.find("{")
    try:
        return json.JSONDecoder().raw_decode(text, start)[0] if start >= 0 else None
    except (ValueError, RecursionError):
        return None
