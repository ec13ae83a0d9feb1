"""Gemma 4: JSON with quotes of its own, and keys without quotes.

<|tool_call>call:look_up{place:<|"|>harbour<|"|>,days:3}<tool_call|>
"""

from leftoff.chat.formats.base import CallSyntax, ParameterSyntax
from leftoff.chat.formats.json_calls import escaped, parse_string, to_json
from leftoff.chat.formats.offered_tools import ANY_TYPE
from leftoff.chat.formats.parameters import as_json
from leftoff.chat.formats.scanner import Markers, MismatchError, Scanner, Waiting
from leftoff.chat.formats.tagged import CallFormat

_QUOTE = '<|"|>'
_QUOTE_END = Markers(_QUOTE, strips=False)
_NAME_END = Markers("{", strips=False)
_KEY_END = Markers(":", strips=False)
_SCALAR_ENDS = frozenset(",}]")
_MAX_DEPTH = 64


class GemmaCalls(CallFormat):
    """Calls of Gemma 4: a name and arguments in JSON with quotes of its own."""

    syntax = CallSyntax(
        "<|tool_call>call:",
        "{",
        "}<tool_call|>",
        parameter=ParameterSyntax("", ":", "", between=",", text_quote=_QUOTE),
    )
    triggers = ("<|tool_call>",)
    markers = ("<tool_call|>", _QUOTE)

    def parse_calls(self, scanner: Scanner) -> Waiting[None]:
        yield from scanner.expect("call:")
        scanner.start_call((yield from scanner.word(_NAME_END)))
        yield from _parse_nested(scanner, "{", "}", _MAX_DEPTH)
        scanner.mark()
        yield from scanner.expect("<tool_call|>")


def _parse_value(scanner: Scanner, levels: int) -> Waiting[None]:
    if levels == 0:
        raise MismatchError
    yield from scanner.spaces()
    if (yield from scanner.accept(_QUOTE)):
        yield from _parse_text(scanner)
    elif (yield from scanner.peek()) == '"':
        scanner.emit_arguments(to_json((yield from parse_string(scanner))))
    elif (yield from scanner.accept("{")):
        yield from _parse_nested(scanner, "{", "}", levels)
    elif (yield from scanner.accept("[")):
        yield from _parse_nested(scanner, "[", "]", levels)
    else:
        yield from _parse_scalar(scanner)


def _parse_text(scanner: Scanner) -> Waiting[None]:
    scanner.unmark()
    scanner.emit_arguments('"')
    if not (yield from scanner.until(_QUOTE_END, lambda text: scanner.emit_arguments(escaped(text)))):
        raise MismatchError
    scanner.emit_arguments('"')


def _parse_nested(scanner: Scanner, bracket: str, closing: str, levels: int) -> Waiting[None]:
    """Parses an object or a list, from behind its opening bracket. All that was emitted stays: the mark follows."""
    scanner.emit_arguments(bracket)
    scanner.mark()
    separator = ""
    while True:
        yield from scanner.spaces()
        if (yield from scanner.accept(closing)):
            break
        if separator:
            yield from scanner.expect(",")
        key = f"{to_json((yield from _parse_key(scanner)))}: " if bracket == "{" else ""
        scanner.emit_arguments(separator + key)
        scanner.mark()
        yield from _parse_value(scanner, levels - 1)
        scanner.mark()
        separator = ", "
    scanner.emit_arguments(closing)


def _parse_key(scanner: Scanner) -> Waiting[str]:
    yield from scanner.spaces()
    if (yield from scanner.accept(_QUOTE)):
        key = yield from scanner.word(_QUOTE_END)
    elif (yield from scanner.peek()) == '"':
        key = yield from parse_string(scanner)
    else:
        return (yield from scanner.word(_KEY_END))
    yield from scanner.expect(":")
    return key


def _parse_scalar(scanner: Scanner) -> Waiting[None]:
    text = ""
    while (letter := (yield from scanner.peek())) not in _SCALAR_ENDS:
        if not letter:
            raise MismatchError
        text += letter
        scanner.at += 1
    scanner.unmark()
    scanner.emit_arguments(as_json(text, ANY_TYPE))
