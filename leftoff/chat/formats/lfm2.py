"""LFM2: calls in Python's syntax, or as JSON.

<|tool_call_start|>[look_up(place="harbour")]<|tool_call_end|>
"""

import ast
import re
from contextlib import suppress

from leftoff.chat.formats.base import CallSyntax, ParameterSyntax
from leftoff.chat.formats.hermes import HermesCalls
from leftoff.chat.formats.json_calls import escaped, from_json, parse_call, raw_value, to_json
from leftoff.chat.formats.parameters import ObjectWriter
from leftoff.chat.formats.scanner import Markers, MismatchError, Scanner, Waiting
from leftoff.chat.formats.tagged import CallFormat

_BEGIN, _END = "<|tool_call_start|>", "<|tool_call_end|>"
_NAME_END = Markers("(", strips=False)
_KEY_END = Markers("=", strips=False)
_KEY = re.compile(r"[\w.-]+")

_QUOTES = ('"', "'")
_STRING_ENDS = {quote: Markers(quote, "\\", strips=False) for quote in _QUOTES}
_STRING_MARKS = {quote: re.compile(rf"[\\{quote}]") for quote in _QUOTES}
_MARKS = re.compile(r"[\"'(){}\[\],]")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": ""}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}


class Lfm2Calls(CallFormat):
    """Some of the templates show no calls: they are then shown as those of Hermes, and the model may write those."""

    syntax = CallSyntax(
        "",
        "(",
        ")",
        begin=_BEGIN + "[",
        between=", ",
        end="]" + _END,
        parameter=ParameterSyntax("", "=", "", between=", ", plain_strings=False),
    )
    triggers = (_BEGIN, *HermesCalls.triggers)
    markers = (_END,)

    def parse_calls(self, scanner: Scanner) -> Waiting[None]:
        if scanner.trigger != _BEGIN:
            yield from HermesCalls().parse_calls(scanner)
            return
        yield from scanner.expect("[")
        yield from scanner.spaces()
        is_json_call = (yield from scanner.peek()) == "{"
        yield from scanner.calls(parse_call if is_json_call else _parse_python_call, ",")
        yield from scanner.expect("]", _END)


def _parse_python_call(scanner: Scanner) -> Waiting[None]:
    name = yield from scanner.word(_NAME_END)
    scanner.start_call(name)
    scanner.mark()
    arguments = ObjectWriter(scanner)
    yield from scanner.spaces()
    is_over = yield from scanner.accept(")")
    while not is_over:
        yield from _parse_argument(scanner, arguments)
        yield from scanner.spaces()
        is_over = not (yield from scanner.accept(","))
        if is_over:
            yield from scanner.expect(")")
    arguments.end()
    scanner.mark()


def _parse_argument(scanner: Scanner, arguments: ObjectWriter) -> Waiting[None]:
    key = yield from scanner.word(_KEY_END)
    if not _KEY.fullmatch(key):
        raise MismatchError
    yield from scanner.spaces()
    if (yield from scanner.peek()) in _QUOTES:
        arguments.key(key)
        yield from _parse_string(scanner)
    else:
        value = yield from _parse_other_value(scanner)
        arguments.key(key)
        scanner.emit_arguments(value)
    scanner.mark()


def _parse_string(scanner: Scanner) -> Waiting[None]:
    """Emits a Python string as a JSON string, piece by piece. The scanner stands at its opening quote."""
    ends = _STRING_ENDS[scanner.text[scanner.at]]
    scanner.at += 1
    scanner.unmark()
    scanner.emit_arguments('"')
    while True:
        end = yield from scanner.until(ends, lambda text: scanner.emit_arguments(escaped(text)))
        if end is None:
            raise MismatchError
        if end != "\\":
            break
        scanner.emit_arguments(escaped((yield from _parse_escape(scanner))))
    scanner.emit_arguments('"')


def _parse_escape(scanner: Scanner) -> Waiting[str]:
    """Returns the character that an escape stands for, from behind its backslash."""
    letter = yield from scanner.peek()
    scanner.at += len(letter)
    if letter not in _HEX_DIGITS:
        return _ESCAPES.get(letter, letter if letter in ("\\", *_QUOTES) else "\\" + letter)
    size = _HEX_DIGITS[letter]
    while len(scanner.text) - scanner.at < size and not scanner.is_ended:
        yield from scanner.more()
    try:
        character = chr(int(scanner.text[scanner.at : scanner.at + size], 16))
    except (ValueError, OverflowError):
        return "\\" + letter
    scanner.at += size
    return character


def _parse_other_value(scanner: Scanner) -> Waiting[str]:
    """Returns a value that is no string, as JSON."""
    text = yield from raw_value(scanner, _MARKS, _STRING_MARKS)
    with suppress(ValueError):  # some models write `true` and `null`
        from_json(text)
        return text
    try:
        return to_json(ast.literal_eval(text))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise MismatchError from error
