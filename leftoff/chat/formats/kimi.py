"""Kimi K2.

<|tool_calls_section_begin|><|tool_call_begin|>functions.look_up:0<|tool_call_argument_begin|>{"place": "harbour"}
<|tool_call_end|><|tool_calls_section_end|>
"""

from leftoff.chat.formats.base import CallSyntax
from leftoff.chat.formats.json_calls import parse_named_call
from leftoff.chat.formats.scanner import Markers, Scanner, Waiting
from leftoff.chat.formats.tagged import CallFormat

_BEGIN, _END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_CALL, _CALL_END = "<|tool_call_begin|>", "<|tool_call_end|>"
_ARGUMENTS = "<|tool_call_argument_begin|>"
_NAME_END = Markers(_ARGUMENTS, strips=False)


class KimiCalls(CallFormat):
    """Calls of Kimi K2: a section of calls, each with an id and JSON arguments."""

    syntax = CallSyntax(_CALL + "functions.", ":0" + _ARGUMENTS, _CALL_END, begin=_BEGIN, end=_END)
    triggers = (_BEGIN,)
    markers = (_END, _CALL, _CALL_END, _ARGUMENTS)

    def parse_calls(self, scanner: Scanner) -> Waiting[None]:
        yield from scanner.expect(_CALL)
        yield from scanner.calls(self._parse_call, _CALL)
        yield from scanner.expect(_END)

    def _parse_call(self, scanner: Scanner) -> Waiting[None]:
        name = (yield from scanner.word(_NAME_END)).removeprefix("functions.")
        yield from parse_named_call(scanner, name.rpartition(":")[0] or name)
        yield from scanner.expect(_CALL_END)
        scanner.mark()
