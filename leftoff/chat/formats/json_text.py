"""JSON as it is being written."""

import json
import re
from typing import Any, NoReturn

from leftoff.chat.formats.scanner import NotSoError, Reading, Say, Waiting

_BRACKETS = re.compile(r'[\\"{}\[\]]')
_STRING_MARKS = re.compile(r'[\\"]')
_SCALAR_END = re.compile(r"[\s,}\]]")


class _Scan:
    """Finds where an object or a list ends: by its brackets, whatever stands between them."""

    def __init__(self) -> None:
        self.is_over = False
        self._depth = 0
        self._in_string = False

    def go(self, text: str, at: int) -> int:
        """As far as can be told. A backslash waits for what it escapes."""
        while True:
            found = (_STRING_MARKS if self._in_string else _BRACKETS).search(text, at)
            if found is None:
                return len(text)
            at = found.end()
            match found[0]:
                case "\\":
                    if at == len(text):
                        return at - 1
                    at += 1
                case '"':
                    self._in_string = not self._in_string
                case "{" | "[":
                    self._depth += 1
                case _:
                    self._depth -= 1
                    if self._depth == 0:
                        self.is_over = True
                        return at


def read_nested(reading: Reading, say: Say) -> Waiting[None]:
    """Says an object or a list, as it is written. Ends with the text if the text ends within."""
    scan = _Scan()
    while True:
        end = scan.go(reading.text, reading.at)
        if reading.is_ended and not scan.is_over:
            end = len(reading.text)
        say(reading.text[reading.at : end])
        reading.at = end
        if scan.is_over or reading.is_ended:
            return
        yield from reading.more()


def read_string(reading: Reading) -> Waiting[str]:
    """What a string says."""
    yield from reading.expect('"')
    pieces = ['"']
    while True:
        found = _STRING_MARKS.search(reading.text, reading.at)
        end = found.start() if found else len(reading.text)
        pieces.append(reading.text[reading.at : end])
        reading.at = end
        if found and found[0] == '"':
            reading.at += 1
            return _decoded("".join(pieces) + '"')
        if found and end + 2 <= len(reading.text):
            pieces.append(reading.text[end : end + 2])
            reading.at += 2
        else:
            yield from reading.more()


def read_value(reading: Reading) -> Waiting[str]:
    """Any value, as it is written."""
    yield from reading.spaces()
    first = yield from reading.peek()
    if first in ("{", "["):
        pieces: list[str] = []
        yield from read_nested(reading, pieces.append)
        return "".join(pieces)
    if first == '"':
        return to_json((yield from read_string(reading)))
    return (yield from _read_scalar(reading))


def _read_scalar(reading: Reading) -> Waiting[str]:
    pieces: list[str] = []
    while True:
        found = _SCALAR_END.search(reading.text, reading.at)
        end = found.start() if found else len(reading.text)
        pieces.append(reading.text[reading.at : end])
        reading.at = end
        if found:
            return "".join(pieces)
        yield from reading.more()


def to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def escaped(text: str) -> str:
    """As it stands inside of a JSON string. Character by character: it may be cut anywhere."""
    return to_json(text)[1:-1]


def is_json(text: str) -> bool:
    try:
        from_json(text)
    except ValueError:
        return False
    return True


def from_json(text: str) -> Any:  # noqa: ANN401
    """Strictly: without what Python adds to JSON."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _decoded(text: str) -> str:
    try:
        return str(json.loads(text, strict=False))
    except ValueError as error:
        raise NotSoError from error
