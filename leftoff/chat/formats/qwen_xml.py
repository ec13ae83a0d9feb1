"""The way of Qwen3-Coder, Qwen3.5 and Nemotron 3.

<tool_call>
<function=look_up>
<parameter=place>
harbour
</parameter>
</function>
</tool_call>
"""

from leftoff.chat.formats.base import CallSyntax, ParameterSyntax
from leftoff.chat.formats.parameters import ArgumentsWriter, ValueWriter, read_value
from leftoff.chat.formats.scanner import Markers, NotSoError, Reading, Waiting
from leftoff.chat.formats.tagged import CallFormat
from leftoff.chat.formats.tools import Tools

_FUNCTION, _PARAMETER = "<function=", "<parameter="
_VALUE_END = "</parameter>"
_TAG_END = Markers(">", strips=False)
_VALUE_ENDS = Markers(_VALUE_END, "\n" + _VALUE_END, strips=False)


class QwenXmlCalls(CallFormat):
    syntax = CallSyntax(
        "<tool_call>\n<function=",
        ">\n",
        "</function>\n</tool_call>",
        between="\n",
        parameter=ParameterSyntax("<parameter=", ">\n", "\n</parameter>\n"),
    )
    triggers = ("<tool_call>", _FUNCTION)
    markers = ("</tool_call>",)

    def read_calls(self, reading: Reading, tools: Tools, trigger: str) -> Waiting[None]:
        if trigger != _FUNCTION:
            yield from reading.expect(_FUNCTION)
        name = yield from reading.word(_TAG_END)
        if trigger == _FUNCTION and name not in tools.names:
            raise NotSoError
        key = yield from self._read_key(reading)
        reading.start_call(name)
        arguments = ArgumentsWriter(reading)
        while key is not None:
            arguments.key(key)
            yield from self._read_value(reading, ValueWriter(reading.say_arguments, tools.kinds(name, key)))
            reading.hold()
            key = yield from self._read_key(reading)
            reading.let_go()
        arguments.end()
        reading.hold()
        if trigger != _FUNCTION:
            yield from reading.expect("</tool_call>")

    def _read_key(self, reading: Reading) -> Waiting[str | None]:
        """Of the next parameter; None if the call ends here."""
        yield from reading.spaces()
        if (yield from reading.literal(_PARAMETER)):
            return (yield from reading.word(_TAG_END))
        yield from reading.expect("</function>")
        return None

    def _read_value(self, reading: Reading, value: ValueWriter) -> Waiting[None]:
        yield from reading.literal("\n")
        while True:
            end = yield from read_value(reading, _VALUE_ENDS, value)
            if (yield from self._goes_on(reading)):
                break
            value.write(end)  # it is what the value speaks of
        value.end()

    def _goes_on(self, reading: Reading) -> Waiting[bool]:
        """Whether the next tag is one that can follow a value."""
        reading.hold()
        try:
            yield from reading.spaces()
            goes_on = (yield from reading.literal(_PARAMETER)) or (yield from reading.literal("</function>"))
        except NotSoError:
            goes_on = False
        goes_on = goes_on or (reading.is_ended and reading.at == len(reading.text))
        reading.go_back()
        return goes_on
