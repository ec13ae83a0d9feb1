"""The way of GLM 4.5 and later.

<tool_call>look_up
<arg_key>place</arg_key>
<arg_value>harbour</arg_value>
</tool_call>
"""

from leftoff.chat.formats.base import CallSyntax, ParameterSyntax
from leftoff.chat.formats.parameters import ArgumentsWriter, ValueWriter, read_value
from leftoff.chat.formats.scanner import Markers, NotSoError, Reading, Waiting
from leftoff.chat.formats.tagged import CallFormat
from leftoff.chat.formats.tools import Tools

_NAME_ENDS = Markers("<arg_key>", "</tool_call>")
_KEY_END = Markers("</arg_key>", strips=False)
_VALUE_END = Markers("</arg_value>", strips=False)


class GlmCalls(CallFormat):
    syntax = CallSyntax(
        "<tool_call>",
        "\n",
        "</tool_call>",
        between="\n",
        parameter=ParameterSyntax("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n"),
    )
    triggers = ("<tool_call>",)
    markers = ("</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")

    def read_calls(self, reading: Reading, tools: Tools, trigger: str) -> Waiting[None]:  # noqa: ARG002
        taken: list[str] = []
        tag = yield from reading.until(_NAME_ENDS, taken.append)
        name = "".join(taken).strip()
        key = yield from self._read_key(reading, tag)
        reading.start_call(name)
        arguments = ArgumentsWriter(reading)
        while key is not None:
            arguments.key(key)
            value = ValueWriter(reading.say_arguments, tools.kinds(name, key))
            yield from read_value(reading, _VALUE_END, value)
            value.end()
            reading.hold()
            key = yield from self._read_key(reading, (yield from self._read_tag(reading)))
            reading.let_go()
        arguments.end()

    def _read_tag(self, reading: Reading) -> Waiting[str]:
        yield from reading.spaces()
        if (yield from reading.literal("<arg_key>")):
            return "<arg_key>"
        yield from reading.expect("</tool_call>")
        return "</tool_call>"

    def _read_key(self, reading: Reading, tag: str | None) -> Waiting[str | None]:
        """From behind the tag up to the value; None if the call ends there."""
        if tag is None:
            raise NotSoError
        if tag == "</tool_call>":
            return None
        key = yield from reading.word(_KEY_END)
        yield from reading.expect("<arg_value>")
        return key
