"""A reply that is being read: its text as far as it has come, and the parts made from it.

Formats read it with generators that stop wherever they need more text, so that each is written as if all of it were
there. What they decide depends on the text alone, never on where it was cut: nothing here looks at more than it needs,
and what it needs it waits for.
"""

import re
from collections.abc import Callable, Generator
from typing import TypeVar

from leftoff.chat.formats.parts import CallArguments, CallStart, Content, Part, Reasoning

Result = TypeVar("Result")
Waiting = Generator[None, None, Result]
Say = Callable[[str], None]

_MOST_HELD = 1 << 14  # characters of what may become a call
_MOST_SPACES = 64  # before a marker
_SPACES = re.compile(r"\s*")
_NAME = re.compile(r"[^\s<>{}()\"\ud800-\udfff]{1,256}")  # of a tool; half a character cannot be sent


class NotSoError(Exception):
    """The text is not what was looked for, or ended before it was."""


class EnoughError(Exception):
    """Nobody wants to know what comes now."""


class Markers:
    """Texts that end what stands before them. With `strips`, white space before them is part of them."""

    def __init__(self, *texts: str, strips: bool = True) -> None:
        # Of one that is complete within another it would depend on the pace whether it is seen.
        assert not any(one in other[:-1] for one in texts for other in texts)
        self._texts = texts
        self._strips = strips
        self._first = re.compile("[" + re.escape("".join({text[0] for text in texts})) + "]") if texts else None
        spaces = rf"\s{{0,{_MOST_SPACES}}}" if strips else ""
        self._pattern = re.compile(spaces + "(" + "|".join(map(re.escape, texts)) + ")") if texts else None

    def search(self, text: str, at: int) -> re.Match[str] | None:
        if self._first is None or self._pattern is None or not self._first.search(text, at):
            return None
        return self._pattern.search(text, at)

    def safe_end(self, text: str, at: int) -> int:
        """Up to where no marker can begin, whatever comes next."""
        end = len(text)
        if self._first is not None and self._first.search(text, at):
            end -= max(_overlap(text, at, marker) for marker in self._texts)
        if self._strips and end > at and text[end - 1].isspace():
            end = max(at, end - _MOST_SPACES, len(text[:end].rstrip()))
        return end


def _overlap(text: str, at: int, marker: str) -> int:
    """How many characters at the end of `text` may be the beginning of `marker`."""
    longest = min(len(text) - at, len(marker) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(marker[:size])), 0)


class Reading:
    """`text[at:]` is still to be read. From `hold` on, all is kept until it is known what it is.

    What was read is dropped while waiting for more: no position may be kept over a `yield`.
    """

    def __init__(self, *, one_call: bool = False) -> None:
        self.text = ""
        self.at = 0
        self.is_ended = False
        self.num_calls = 0
        self.gap = ""  # the white space that was part of the last marker
        self._mark: int | None = None
        self._parts: list[Part] = []
        self._one_call = one_call

    # --- text in, parts out

    def feed(self, text: str) -> None:
        start = self.at if self._mark is None else self._mark
        self.text = self.text[start:] + text if start < len(self.text) else text
        self.at -= start
        self._mark = None if self._mark is None else 0

    def take(self) -> tuple[Part, ...]:
        parts = tuple(self._parts)
        self._parts.clear()
        return parts

    def say_content(self, text: str) -> None:
        if text:
            self._parts.append(Content(text))

    def say_reasoning(self, text: str) -> None:
        if text:
            self._parts.append(Reasoning(text))

    def say_arguments(self, text: str) -> None:
        if text:
            self._parts.append(CallArguments(self.num_calls - 1, text))

    def start_call(self, name: str) -> None:
        """It is one: what was held is let go."""
        if not _NAME.fullmatch(name) or self._is_too_long:
            raise NotSoError
        self._mark = None
        self._parts.append(CallStart(self.num_calls, name))
        self.num_calls += 1

    def end_call(self) -> None:
        if self._one_call:
            raise EnoughError

    # --- going back

    def hold(self) -> None:
        """What comes now may not be what it seems."""
        self._mark = self.at

    def let_go(self) -> None:
        self._mark = None

    def go_back(self) -> None:
        """To where it was held, if it still is: it was not."""
        if self._mark is not None:
            self.at, self._mark = self._mark, None

    @property
    def _is_too_long(self) -> bool:
        return self._mark is not None and self.at - self._mark > _MOST_HELD

    # --- reading

    def more(self) -> Waiting[None]:
        """Waits for more text."""
        if self.is_ended or self._is_too_long:
            raise NotSoError
        yield

    def until(self, markers: Markers, say: Say) -> Waiting[str | None]:
        """Says all before the first marker and goes behind it; None when the text ended without."""
        while True:
            found = markers.search(self.text, self.at)
            if found:
                say(self.text[self.at : found.start()])
                self.at = found.end()
                self.gap = self.text[found.start() : found.start(1)]
                return found[1]
            end = len(self.text) if self.is_ended else markers.safe_end(self.text, self.at)
            say(self.text[self.at : end])
            self.at = end
            if self.is_ended:
                return None
            yield from self.more()

    def spaces(self) -> Waiting[None]:
        """Goes behind white space."""
        while True:
            found = _SPACES.match(self.text, self.at)
            assert found
            self.at = found.end()
            if self.at < len(self.text) or self.is_ended:
                return
            yield from self.more()

    def literal(self, text: str) -> Waiting[bool]:
        """Goes behind `text` if it comes next."""
        while True:
            found = self.text[self.at : self.at + len(text)]
            if found == text:
                self.at += len(text)
                return True
            if self.is_ended or not text.startswith(found):
                return False
            yield from self.more()

    def expect(self, *texts: str) -> Waiting[None]:
        """These, one after the other, with white space before each."""
        for text in texts:
            yield from self.spaces()
            if not (yield from self.literal(text)):
                raise NotSoError

    def peek(self) -> Waiting[str]:
        """The next character; nothing at the end."""
        while self.at >= len(self.text):
            if self.is_ended:
                return ""
            yield from self.more()
        return self.text[self.at]

    def word(self, ends: Markers) -> Waiting[str]:
        """What stands before the first of `ends`, which must come; goes behind it."""
        taken: list[str] = []
        if (yield from self.until(ends, taken.append)) is None:
            raise NotSoError
        return "".join(taken).strip()

    def calls(self, read_call: Callable[["Reading"], Waiting[None]], separator: str) -> Waiting[None]:
        """One or more, each of which holds what follows it, with `separator` between two of them."""
        yield from read_call(self)
        while (yield from self._has_another(separator)):
            self.end_call()
            yield from read_call(self)

    def _has_another(self, separator: str) -> Waiting[bool]:
        yield from self.spaces()
        return (yield from self.literal(separator))
