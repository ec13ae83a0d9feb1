"""The way of Granite 3, a list of JSON objects after one tag. Granite 4 writes as Hermes does.

<|tool_call|>[{"name": "look_up", "arguments": {"place": "harbour"}}]
"""

from leftoff.chat.output.format import CallSyntax
from leftoff.chat.output.json_calls import read_calls
from leftoff.chat.output.reading import Reading, Waiting
from leftoff.chat.output.tagged import CallFormat
from leftoff.chat.output.tools import Tools


class GraniteCalls(CallFormat):
    syntax = CallSyntax('{"name": "', '", "arguments": ', "}", begin="<|tool_call|>[", between=", ", end="]")
    triggers = ("<|tool_call|>",)

    def read_calls(self, reading: Reading, tools: Tools, trigger: str) -> Waiting[None]:  # noqa: ARG002
        yield from read_calls(reading)
