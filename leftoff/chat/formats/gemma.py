"""The way of Gemma 4: JSON with quotes of its own.

<|tool_call>call:look_up{place:<|"|>harbour<|"|>,days:3}<tool_call|>
"""

from leftoff.chat.formats.base import CallSyntax, ParameterSyntax
from leftoff.chat.formats.json_text import escaped, read_string, to_json
from leftoff.chat.formats.parameters import as_json
from leftoff.chat.formats.scanner import Markers, NotSoError, Reading, Waiting
from leftoff.chat.formats.tagged import CallFormat
from leftoff.chat.formats.tools import ANY, Tools

_QUOTE = '<|"|>'
_QUOTE_END = Markers(_QUOTE, strips=False)
_NAME_END = Markers("{", strips=False)
_KEY_END = Markers(":", strips=False)
_SCALAR_ENDS = frozenset(",}]")
_DEEPEST = 64


class GemmaCalls(CallFormat):
    syntax = CallSyntax(
        "<|tool_call>call:",
        "{",
        "}<tool_call|>",
        parameter=ParameterSyntax("", ":", "", between=",", text_quote=_QUOTE),
    )
    triggers = ("<|tool_call>",)
    markers = ("<tool_call|>", _QUOTE)

    def read_calls(self, reading: Reading, tools: Tools, trigger: str) -> Waiting[None]:  # noqa: ARG002
        yield from reading.expect("call:")
        reading.start_call((yield from reading.word(_NAME_END)))
        yield from _read_object(reading, _DEEPEST)
        reading.hold()
        yield from reading.expect("<tool_call|>")


def _read_value(reading: Reading, levels: int) -> Waiting[None]:
    if levels == 0:
        raise NotSoError
    yield from reading.spaces()
    if (yield from reading.literal(_QUOTE)):
        yield from _read_text(reading)
    elif (yield from reading.peek()) == '"':
        reading.say_arguments(to_json((yield from read_string(reading))))
    elif (yield from reading.literal("{")):
        yield from _read_object(reading, levels)
    elif (yield from reading.literal("[")):
        yield from _read_list(reading, levels)
    else:
        yield from _read_scalar(reading)


def _read_text(reading: Reading) -> Waiting[None]:
    reading.let_go()
    reading.say_arguments('"')
    if not (yield from reading.until(_QUOTE_END, lambda text: reading.say_arguments(escaped(text)))):
        raise NotSoError
    reading.say_arguments('"')


def _read_object(reading: Reading, levels: int) -> Waiting[None]:
    """From behind its bracket, as all that is nested."""
    reading.say_arguments("{")
    reading.hold()
    separator = ""
    while not (yield from _closes(reading, "}", separator)):
        key = yield from _read_key(reading)
        reading.say_arguments(f"{separator}{to_json(key)}: ")
        reading.hold()
        yield from _read_value(reading, levels - 1)
        reading.hold()
        separator = ", "
    reading.say_arguments("}")


def _read_list(reading: Reading, levels: int) -> Waiting[None]:
    reading.say_arguments("[")
    reading.hold()
    separator = ""
    while not (yield from _closes(reading, "]", separator)):
        reading.say_arguments(separator)
        reading.hold()
        yield from _read_value(reading, levels - 1)
        reading.hold()
        separator = ", "
    reading.say_arguments("]")


def _closes(reading: Reading, bracket: str, separator: str) -> Waiting[bool]:
    """Goes behind the bracket, or else behind the comma that must be there after the first."""
    yield from reading.spaces()
    if (yield from reading.literal(bracket)):
        return True
    if separator:
        yield from reading.expect(",")
    return False


def _read_key(reading: Reading) -> Waiting[str]:
    yield from reading.spaces()
    if (yield from reading.literal(_QUOTE)):
        key = yield from reading.word(_QUOTE_END)
    elif (yield from reading.peek()) == '"':
        key = yield from read_string(reading)
    else:
        return (yield from reading.word(_KEY_END))
    yield from reading.expect(":")
    return key


def _read_scalar(reading: Reading) -> Waiting[None]:
    taken = ""
    while (letter := (yield from reading.peek())) not in _SCALAR_ENDS:
        if not letter:
            raise NotSoError
        taken += letter
        reading.at += 1
    reading.let_go()
    reading.say_arguments(as_json(taken, ANY))
