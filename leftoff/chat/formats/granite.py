"""The way of Granite 3, a list of JSON objects after one tag. Granite 4 writes as Hermes does.

<|tool_call|>[{"name": "look_up", "arguments": {"place": "harbour"}}]
"""

from leftoff.chat.formats.base import CallSyntax
from leftoff.chat.formats.json_calls import read_calls
from leftoff.chat.formats.scanner import Reading, Waiting
from leftoff.chat.formats.tagged import CallFormat
from leftoff.chat.formats.tools import Tools


class GraniteCalls(CallFormat):
    syntax = CallSyntax('{"name": "', '", "arguments": ', "}", begin="<|tool_call|>[", between=", ", end="]")
    triggers = ("<|tool_call|>",)

    def read_calls(self, reading: Reading, tools: Tools, trigger: str) -> Waiting[None]:  # noqa: ARG002
        yield from read_calls(reading)
