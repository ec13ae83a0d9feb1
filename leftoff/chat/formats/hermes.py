"""The way of Nous Hermes, which Qwen took over, and many after it.

<tool_call>
{"name": "look_up", "arguments": {"place": "harbour"}}
</tool_call>
"""

from leftoff.chat.formats.base import CallSyntax
from leftoff.chat.formats.json_calls import read_call
from leftoff.chat.formats.scanner import Reading, Waiting
from leftoff.chat.formats.tagged import CallFormat
from leftoff.chat.formats.tools import Tools


class HermesCalls(CallFormat):
    syntax = CallSyntax('<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>", between="\n")
    triggers = ("<tool_call>",)
    markers = ("</tool_call>",)

    def read_calls(self, reading: Reading, tools: Tools, trigger: str) -> Waiting[None]:  # noqa: ARG002
        yield from read_call(reading)
        yield from reading.expect("</tool_call>")
