"""Scans the text of a reply as it arrives, and collects the parts that a format parses from it.

Formats are generators that yield wherever they need more text, so that each is written as if the whole reply were
there. The result must not depend on how the text is cut: a method looks at no more text than it needs, and waits for
what it needs.
"""

import re
from collections.abc import Callable, Generator
from typing import TypeVar

from leftoff.chat.formats.offered_tools import OfferedTools
from leftoff.chat.formats.parts import CallArguments, CallStart, Content, Part, Reasoning
from leftoff.types import partial_match_length

Result = TypeVar("Result")
Waiting = Generator[None, None, Result]
Emit = Callable[[str], None]

_MAX_HELD = 1 << 14  # characters of what may become a call
_MAX_SPACES = 64  # before a marker
_SPACES = re.compile(r"\s*")
_TOOL_NAME = re.compile(r"[^\s<>{}()\"\ud800-\udfff]{1,256}")  # half a character cannot be sent


class MismatchError(Exception):
    """The text is not what the format expects, or ended too early."""


class EnoughError(Exception):
    """Stop parsing: the one tool call that was allowed is complete."""


class Markers:
    """Texts that end what stands before them. With `strips`, white space before a marker belongs to it."""

    def __init__(self, *texts: str, strips: bool = True) -> None:
        # Which of two is found, one inside the other, would depend on how the text is cut.
        assert not any(one in other[:-1] for one in texts for other in texts)
        self._texts = texts
        self._max_length = max(map(len, texts), default=0)
        self._strips = strips
        self._first = re.compile("[" + re.escape("".join({text[0] for text in texts})) + "]") if texts else None
        spaces = rf"\s{{0,{_MAX_SPACES}}}" if strips else ""
        self._pattern = re.compile(spaces + "(" + "|".join(map(re.escape, texts)) + ")") if texts else None

    def search(self, text: str, start: int) -> re.Match[str] | None:
        if self._first is None or self._pattern is None or not self._first.search(text, start):
            return None
        return self._pattern.search(text, start)

    def safe_end(self, text: str, start: int) -> int:
        """The position before which no marker can begin, whatever text comes next."""
        end = len(text)
        if self._first is not None and self._first.search(text, start):
            tail = text[max(start, end - self._max_length) :]
            end -= max(partial_match_length(tail, marker) for marker in self._texts)
        if self._strips and end > start and text[end - 1].isspace():
            end = max(start, end - _MAX_SPACES, len(text[:end].rstrip()))
        return end


class Scanner:
    """The text from `at` on is still to be parsed.

    `mark` remembers a position to `rewind` to, for text that may turn out to be content. Text before the position (or
    the mark) is dropped when more arrives, so a format must not keep positions across a `yield`.
    """

    def __init__(
        self, tools: OfferedTools, *, splits_reasoning: bool, begins_in_reasoning: bool, one_call: bool
    ) -> None:
        """How the reply to one request is to be parsed."""
        self.tools = tools
        self.splits_reasoning = splits_reasoning
        self.begins_in_reasoning = begins_in_reasoning
        self.text = ""
        self.at = 0
        self.is_ended = False
        self.is_cut = False  # it ended where the model would have gone on
        self.num_calls = 0
        self.word_end = ""  # that the last `word` ended with
        self.spaces_before_marker = ""  # that `until` skipped with the last marker
        self.trigger = ""  # of the calls that are parsed; empty if they began without one
        self._mark: int | None = None
        self._parts: list[Part] = []
        self._one_call = one_call

    # --- text in, parts out

    def feed(self, text: str) -> None:
        start = self.at if self._mark is None else self._mark
        self.text = self.text[start:] + text if start < len(self.text) else text
        self.at -= start
        self._mark = None if self._mark is None else 0

    def take_parts(self) -> tuple[Part, ...]:
        parts = tuple(self._parts)
        self._parts.clear()
        return parts

    def emit_content(self, text: str) -> None:
        if text:
            self._parts.append(Content(text))

    def emit_reasoning(self, text: str) -> None:
        if text:
            self._parts.append(Reasoning(text))

    def emit_arguments(self, text: str) -> None:
        if text:
            self._parts.append(CallArguments(self.num_calls - 1, text))

    def start_call(self, name: str) -> None:
        """Emits the start of a call. From here on there is no way back: the mark is dropped."""
        if not _TOOL_NAME.fullmatch(name) or self._holds_too_much:
            raise MismatchError
        self._mark = None
        self._parts.append(CallStart(self.num_calls, name))
        self.num_calls += 1

    def end_call(self) -> None:
        if self._one_call:
            raise EnoughError

    # --- lookahead

    def mark(self) -> None:
        """Begins a lookahead: the text from here on is held until `unmark`, `rewind` or `start_call`."""
        self._mark = self.at

    def unmark(self) -> None:
        """The lookahead matched: continue from here."""
        self._mark = None

    def rewind(self) -> None:
        """The lookahead did not match: go back to the mark, if there still is one."""
        if self._mark is not None:
            self.at, self._mark = self._mark, None

    def drop_rest(self) -> None:
        """Skips all that is left: half a call, which is no content."""
        self.at, self._mark = len(self.text), None

    @property
    def _holds_too_much(self) -> bool:
        return self._mark is not None and self.at - self._mark > _MAX_HELD

    # --- scanning

    def more(self) -> Waiting[None]:
        """Waits for more text. Raises `MismatchError` if there is none, or if a lookahead has become too long."""
        if self.is_ended or self._holds_too_much:
            raise MismatchError
        yield

    def until(self, markers: Markers, emit: Emit) -> Waiting[str | None]:
        """Emits all text before the first marker, skips the marker and returns it; None if the text ends first."""
        while True:
            found = markers.search(self.text, self.at)
            if found:
                emit(self.text[self.at : found.start()])
                self.at = found.end()
                self.spaces_before_marker = self.text[found.start() : found.start(1)]
                return found[1]
            end = len(self.text) if self.is_ended else markers.safe_end(self.text, self.at)
            emit(self.text[self.at : end])
            self.at = end
            if self.is_ended:
                return None
            yield from self.more()

    def word(self, ends: Markers) -> Waiting[str]:
        """Returns the text before the first of `ends`, stripped, and skips that end, the `word_end`. It must come."""
        taken: list[str] = []
        self.word_end = (yield from self.until(ends, taken.append)) or ""
        if not self.word_end:
            raise MismatchError
        return "".join(taken).strip()

    def spaces(self) -> Waiting[None]:
        """Skips white space."""
        while True:
            found = _SPACES.match(self.text, self.at)
            assert found
            self.at = found.end()
            if self.at < len(self.text) or self.is_ended:
                return
            yield from self.more()

    def accept(self, text: str) -> Waiting[bool]:
        """Skips `text` if it comes next; returns whether it did."""
        while True:
            found = self.text[self.at : self.at + len(text)]
            if found == text:
                self.at += len(text)
                return True
            if self.is_ended or not text.startswith(found):
                return False
            yield from self.more()

    def expect(self, *texts: str) -> Waiting[None]:
        """Skips these texts, one after another, and white space before each. They must come."""
        for text in texts:
            yield from self.spaces()
            if not (yield from self.accept(text)):
                raise MismatchError

    def peek(self) -> Waiting[str]:
        """Returns the next character without skipping it; an empty text at the end."""
        while self.at >= len(self.text):
            if self.is_ended:
                return ""
            yield from self.more()
        return self.text[self.at]

    def calls(self, parse_call: Callable[["Scanner"], Waiting[None]], separator: str) -> Waiting[None]:
        """Parses one or more calls with `separator` between them. `parse_call` must leave a mark behind the call."""
        while True:
            yield from parse_call(self)
            yield from self.spaces()
            if not (yield from self.accept(separator)):
                return
            self.end_call()
