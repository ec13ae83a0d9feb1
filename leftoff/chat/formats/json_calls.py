"""JSON as it arrives: values, and calls written as `{"name": "look_up", "arguments": {"place": "harbour"}}`."""

import json
import re
from dataclasses import dataclass
from typing import Any

import msgspec

from leftoff.chat.formats.parts import parse_arguments
from leftoff.chat.formats.scanner import Emit, MismatchError, Scanner, Waiting

_MARKS = re.compile(r'[\\"{}\[\]]')
_STRING_MARKS = {'"': re.compile(r'[\\"]')}
_MARKS_AND_COMMA = re.compile(r'[\\"{}\[\],]')
_HALVES = re.compile("[\ud800-\udfff]")  # of characters: a model may escape one without the other
_ARGUMENTS_KEYS = ("arguments", "parameters")
_IGNORED_KEYS = ("id", "type")  # the server makes ids of its own, and there is only one type


# --- calls


@dataclass
class _Head:
    """The members of a call that were parsed so far."""

    name: str = ""
    arguments: str = ""  # if they came before the name
    is_started: bool = False


def parse_call(scanner: Scanner, names: frozenset[str] | None = None) -> Waiting[None]:
    """Parses a call, of a tool in `names` if they are given. It is certain to be one where its arguments begin."""
    head = _Head()
    yield from scanner.expect("{")
    while True:
        key = yield from parse_string(scanner)
        yield from scanner.expect(":")
        yield from scanner.spaces()
        yield from _parse_member(scanner, head, key, names)
        yield from scanner.spaces()
        if not (yield from scanner.accept(",")):
            break
    yield from scanner.expect("}")
    if not head.is_started:
        _start(scanner, head, names)
        scanner.emit_arguments(head.arguments or "{}")
    scanner.mark()


def parse_call_list(scanner: Scanner) -> Waiting[None]:
    """Parses a JSON list of calls."""
    yield from scanner.expect("[")
    yield from scanner.calls(parse_call, ",")
    yield from scanner.expect("]")
    scanner.mark()


def parse_named_call(scanner: Scanner, name: str) -> Waiting[None]:
    """Parses the arguments of a call whose name came before them."""
    yield from scanner.spaces()
    if (yield from scanner.peek()) != "{":
        raise MismatchError
    scanner.start_call(name)
    yield from _parse_nested(scanner, scanner.emit_arguments)
    scanner.mark()


def _parse_member(scanner: Scanner, head: _Head, key: str, names: frozenset[str] | None) -> Waiting[None]:
    if key in _IGNORED_KEYS:
        yield from raw_value(scanner, _MARKS_AND_COMMA, _STRING_MARKS)
    elif key == "name" and not head.name:
        head.name = yield from parse_string(scanner)
    elif key not in _ARGUMENTS_KEYS or head.is_started or head.arguments:
        raise MismatchError
    elif head.name and (yield from scanner.peek()) == "{":
        _start(scanner, head, names)
        yield from _parse_nested(scanner, scanner.emit_arguments)
        scanner.mark()
    else:
        head.arguments = yield from _parse_arguments(scanner)


def _parse_arguments(scanner: Scanner) -> Waiting[str]:
    """Some models write the object as a string, and some write null for an empty one."""
    if (yield from scanner.peek()) == '"':
        value = yield from parse_string(scanner)
    else:
        value = yield from raw_value(scanner, _MARKS_AND_COMMA, _STRING_MARKS)
    if value == "null":
        return "{}"
    if parse_arguments(value) is None:
        raise MismatchError
    return value


def _start(scanner: Scanner, head: _Head, names: frozenset[str] | None) -> None:
    if names is not None and head.name not in names:
        raise MismatchError
    scanner.start_call(head.name)
    head.is_started = True


# --- values


class _BracketScan:
    """Finds the end of a value by its brackets and quotes, as its text arrives.

    A value that `is_bracketed` ends behind its own closing bracket, any other before a comma or closing bracket that
    is not its own.
    """

    def __init__(self, marks: re.Pattern[str], string_marks: dict[str, re.Pattern[str]], is_bracketed: bool) -> None:
        self.is_over = False
        self._marks = marks
        self._string_marks = string_marks  # by the quote that begins a string
        self._is_bracketed = is_bracketed
        self._depth = 0
        self._quote = ""

    def advance(self, text: str, at: int) -> int:
        """Returns the end of the value so far. A backslash at the end of the text is left for later."""
        while True:
            found = (self._string_marks[self._quote] if self._quote else self._marks).search(text, at)
            if found is None:
                return len(text)
            mark, at = found[0], found.end()
            if mark == "\\":
                if at == len(text):
                    return at - 1
                at += 1
            elif mark in self._string_marks:
                self._quote = "" if self._quote else mark
            elif mark in "({[":
                self._depth += 1
            elif self._depth == 0:
                self.is_over = True
                return at - 1
            elif mark != ",":
                self._depth -= 1
                if self._depth == 0 and self._is_bracketed:
                    self.is_over = True
                    return at


def _parse_nested(scanner: Scanner, emit: Emit) -> Waiting[None]:
    """Emits an object or a list as it is written. Ends with the text if the text ends inside it."""
    scan = _BracketScan(_MARKS, _STRING_MARKS, is_bracketed=True)
    while True:
        end = scan.advance(scanner.text, scanner.at)
        if scanner.is_ended and not scan.is_over:
            end = len(scanner.text)
        emit(scanner.text[scanner.at : end])
        scanner.at = end
        if scan.is_over or scanner.is_ended:
            return
        yield from scanner.more()


def raw_value(scanner: Scanner, marks: re.Pattern[str], string_marks: dict[str, re.Pattern[str]]) -> Waiting[str]:
    """Returns the text of a value up to a comma or closing bracket that is not its own."""
    scan = _BracketScan(marks, string_marks, is_bracketed=False)
    pieces: list[str] = []
    while not scan.is_over:
        end = scan.advance(scanner.text, scanner.at)
        pieces.append(scanner.text[scanner.at : end])
        scanner.at = end
        if not scan.is_over:
            yield from scanner.more()
    return "".join(pieces).strip()


def parse_string(scanner: Scanner) -> Waiting[str]:
    """Returns the decoded text of a string."""
    yield from scanner.expect('"')
    pieces = ['"']
    while True:
        found = _STRING_MARKS['"'].search(scanner.text, scanner.at)
        end = found.start() if found else len(scanner.text)
        pieces.append(scanner.text[scanner.at : end])
        scanner.at = end
        if found and found[0] == '"':
            scanner.at += 1
            return _decoded("".join(pieces) + '"')
        if found and end + 2 <= len(scanner.text):
            pieces.append(scanner.text[end : end + 2])
            scanner.at += 2
        else:
            yield from scanner.more()


def to_json(value: object) -> str:
    """JSON as chat templates write it: of letters beyond ASCII, only halves of characters are escaped.

    These cannot be sent otherwise. Raises `ValueError` for numbers that JSON lacks.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _HALVES.sub(lambda half: f"\\u{ord(half[0]):x}", text)


def escaped(text: str) -> str:
    """The text inside a JSON string. Each character is escaped by itself, so `text` may be any piece of a string."""
    return to_json(text)[1:-1]


def from_json(text: str) -> Any:  # noqa: ANN401
    """Raises `ValueError` also for what only Python takes for JSON, such as `NaN`."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def _decoded(text: str) -> str:
    try:
        return str(json.loads(text, strict=False))
    except ValueError as error:
        raise MismatchError from error
