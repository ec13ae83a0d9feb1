"""Calls as JSON objects between tags: Nous Hermes, Qwen 2.5 and 3, Granite and many others.

<tool_call>
{"name": "look_up", "arguments": {"place": "harbour"}}
</tool_call>
"""

from leftoff.chat.formats.base import CallSyntax
from leftoff.chat.formats.json_calls import parse_call, parse_call_list
from leftoff.chat.formats.scanner import Scanner, Waiting
from leftoff.chat.formats.tagged import CallFormat


class HermesCalls(CallFormat):
    """Calls of Hermes and Qwen: one JSON object between tags."""

    syntax = CallSyntax('<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>", between="\n")
    triggers = ("<tool_call>",)
    markers = ("</tool_call>",)

    def parse_calls(self, scanner: Scanner) -> Waiting[None]:
        yield from parse_call(scanner)
        yield from scanner.expect("</tool_call>")


class GenericCalls(HermesCalls):
    """Calls where the template shows none: those of Hermes, as `quirks.py` shows them instead, or one JSON object."""

    is_bare = True

    def parse_calls(self, scanner: Scanner) -> Waiting[None]:
        if scanner.trigger:
            yield from super().parse_calls(scanner)
        else:
            yield from parse_call(scanner, scanner.tools.names)


class GraniteCalls(CallFormat):
    """Granite 3: `<|tool_call|>[{"name": "look_up", "arguments": {"place": "harbour"}}]`. Granite 4 is Hermes."""

    syntax = CallSyntax('{"name": "', '", "arguments": ', "}", begin="<|tool_call|>[", between=", ", end="]")
    triggers = ("<|tool_call|>",)

    def parse_calls(self, scanner: Scanner) -> Waiting[None]:
        yield from parse_call_list(scanner)
