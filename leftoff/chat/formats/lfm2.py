"""The way of LFM2: calls as Python would write them, or as JSON.

<|tool_call_start|>[look_up(place="harbour")]<|tool_call_end|>
"""

import re

from leftoff.chat.formats.base import CallSyntax, ParameterSyntax
from leftoff.chat.formats.hermes import HermesCalls
from leftoff.chat.formats.json_calls import read_call
from leftoff.chat.formats.parameters import ArgumentsWriter
from leftoff.chat.formats.python_text import read_other, read_text
from leftoff.chat.formats.scanner import Markers, NotSoError, Reading, Waiting
from leftoff.chat.formats.tagged import CallFormat
from leftoff.chat.formats.tools import Tools

_BEGIN, _END = "<|tool_call_start|>", "<|tool_call_end|>"
_NAME_END = Markers("(", strips=False)
_KEY_END = Markers("=", strips=False)
_NAME = re.compile(r"[\w.-]+")


class Lfm2Calls(CallFormat):
    syntax = CallSyntax(
        "",
        "(",
        ")",
        begin=_BEGIN + "[",
        between=", ",
        end="]" + _END,
        parameter=ParameterSyntax("", "=", "", between=", ", plain_strings=False),
    )
    triggers = (_BEGIN, *HermesCalls.triggers)  # some of the templates show no calls: then they are shown as Hermes'
    markers = (_END,)

    def read_calls(self, reading: Reading, tools: Tools, trigger: str) -> Waiting[None]:
        if trigger != _BEGIN:
            yield from HermesCalls().read_calls(reading, tools, trigger)
            return
        yield from reading.expect("[")
        yield from reading.spaces()
        has_json = (yield from reading.peek()) == "{"
        yield from reading.calls(read_call if has_json else _read_call, ",")
        yield from reading.expect("]", _END)


def _read_call(reading: Reading) -> Waiting[None]:
    name = yield from reading.word(_NAME_END)
    reading.start_call(name)
    reading.hold()
    arguments = ArgumentsWriter(reading)
    yield from reading.spaces()
    is_over = yield from reading.literal(")")
    while not is_over:
        yield from _read_argument(reading, arguments)
        yield from reading.spaces()
        is_over = not (yield from reading.literal(","))
        if is_over:
            yield from reading.expect(")")
    arguments.end()
    reading.hold()


def _read_argument(reading: Reading, arguments: ArgumentsWriter) -> Waiting[None]:
    key = yield from reading.word(_KEY_END)
    if not _NAME.fullmatch(key):
        raise NotSoError
    yield from reading.spaces()
    if (yield from reading.peek()) in ('"', "'"):
        arguments.key(key)
        yield from read_text(reading)
    else:
        value = yield from read_other(reading)
        arguments.key(key)
        reading.say_arguments(value)
    reading.hold()
