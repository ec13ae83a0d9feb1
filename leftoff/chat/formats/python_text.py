"""Python's literals as they are being written."""

import ast
import re

from leftoff.chat.formats.json_text import escaped, is_json, to_json
from leftoff.chat.formats.scanner import Markers, NotSoError, Reading, Waiting

_QUOTES = ('"', "'")
_STRING_ENDS = {quote: Markers(quote, "\\", strips=False) for quote in _QUOTES}
_STRING_MARKS = {quote: re.compile(rf"[\\{quote}]") for quote in _QUOTES}
_MARKS = re.compile(r"[\"'(){}\[\],]")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": ""}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}


def read_text(reading: Reading) -> Waiting[None]:
    """Says a string as JSON, piece by piece. It is known to begin here."""
    ends = _STRING_ENDS[reading.text[reading.at]]
    reading.at += 1
    reading.let_go()
    reading.say_arguments('"')
    while True:
        end = yield from reading.until(ends, lambda text: reading.say_arguments(escaped(text)))
        if end is None:
            raise NotSoError
        if end != "\\":
            break
        reading.say_arguments(escaped((yield from _read_escape(reading))))
    reading.say_arguments('"')


def _read_escape(reading: Reading) -> Waiting[str]:
    """What is meant, from behind a backslash."""
    letter = yield from reading.peek()
    reading.at += len(letter)
    if letter not in _HEX_DIGITS:
        return _ESCAPES.get(letter, letter if letter in ("\\", *_QUOTES) else "\\" + letter)
    size = _HEX_DIGITS[letter]
    while len(reading.text) - reading.at < size and not reading.is_ended:
        yield from reading.more()
    digits = reading.text[reading.at : reading.at + size]
    try:
        meant = chr(int(digits, 16))
    except (ValueError, OverflowError):
        return "\\" + letter
    reading.at += size
    return meant


def read_other(reading: Reading) -> Waiting[str]:
    """Any other value, as JSON: it ends before the comma or the bracket that is not its own."""
    scan = _Scan()
    pieces: list[str] = []
    while not scan.is_over:
        end = scan.go(reading.text, reading.at)
        pieces.append(reading.text[reading.at : end])
        reading.at = end
        if not scan.is_over:
            yield from reading.more()
    return _as_json("".join(pieces).strip())


class _Scan:
    def __init__(self) -> None:
        self.is_over = False
        self._depth = 0
        self._quote = ""

    def go(self, text: str, at: int) -> int:
        """As far as can be told. A backslash waits for what it escapes."""
        while True:
            found = (_STRING_MARKS[self._quote] if self._quote else _MARKS).search(text, at)
            if found is None:
                return len(text)
            at = found.end()
            mark = found[0]
            if mark == "\\":
                if at == len(text):
                    return at - 1
                at += 1
            elif mark in _QUOTES:
                self._quote = "" if self._quote else mark
            elif mark in "({[":
                self._depth += 1
            elif self._depth == 0:
                self.is_over = True
                return at - 1
            elif mark != ",":
                self._depth -= 1


def _as_json(text: str) -> str:
    """Some write JSON instead."""
    if is_json(text):
        return text
    try:
        return to_json(ast.literal_eval(text))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise NotSoError from error
