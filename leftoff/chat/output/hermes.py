"""The way of Nous Hermes, which Qwen took over, and many after it.

<tool_call>
{"name": "look_up", "arguments": {"place": "harbour"}}
</tool_call>
"""

from leftoff.chat.output.format import CallSyntax
from leftoff.chat.output.json_calls import read_call
from leftoff.chat.output.reading import Reading, Waiting
from leftoff.chat.output.tagged import CallFormat
from leftoff.chat.output.tools import Tools


class HermesCalls(CallFormat):
    syntax = CallSyntax('<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>", between="\n")
    triggers = ("<tool_call>",)
    markers = ("</tool_call>",)

    def read_calls(self, reading: Reading, tools: Tools, trigger: str) -> Waiting[None]:  # noqa: ARG002
        yield from read_call(reading)
        yield from reading.expect("</tool_call>")
