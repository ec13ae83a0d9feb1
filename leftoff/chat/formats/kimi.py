"""The way of Kimi K2.

<|tool_calls_section_begin|><|tool_call_begin|>functions.look_up:0<|tool_call_argument_begin|>{"place": "harbour"}
<|tool_call_end|><|tool_calls_section_end|>
"""

from leftoff.chat.formats.base import CallSyntax
from leftoff.chat.formats.json_calls import read_named
from leftoff.chat.formats.scanner import Markers, Reading, Waiting
from leftoff.chat.formats.tagged import CallFormat
from leftoff.chat.formats.tools import Tools

_BEGIN, _END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_CALL, _CALL_END = "<|tool_call_begin|>", "<|tool_call_end|>"
_ARGUMENTS = "<|tool_call_argument_begin|>"
_NAME_END = Markers(_ARGUMENTS, strips=False)


class KimiCalls(CallFormat):
    syntax = CallSyntax(_CALL + "functions.", ":0" + _ARGUMENTS, _CALL_END, begin=_BEGIN, end=_END)
    triggers = (_BEGIN,)
    markers = (_END, _CALL, _CALL_END, _ARGUMENTS)

    def read_calls(self, reading: Reading, tools: Tools, trigger: str) -> Waiting[None]:  # noqa: ARG002
        yield from reading.expect(_CALL)
        yield from reading.calls(self._read_call, _CALL)
        yield from reading.expect(_END)

    def _read_call(self, reading: Reading) -> Waiting[None]:
        name = (yield from reading.word(_NAME_END)).removeprefix("functions.")
        yield from read_named(reading, name.rpartition(":")[0] or name)
        yield from reading.expect(_CALL_END)
        reading.hold()
