"""Mistral: a list of JSON objects, and since 2025 one call after another.

[TOOL_CALLS][{"name": "look_up", "arguments": {"place": "harbour"}}]
[TOOL_CALLS]look_up[ARGS]{"place": "harbour"}
"""

from leftoff.chat.formats.base import CallSyntax
from leftoff.chat.formats.json_calls import parse_call_list, parse_named_call
from leftoff.chat.formats.scanner import Markers, Scanner, Waiting
from leftoff.chat.formats.tagged import CallFormat

_NAME_ENDS = Markers("[ARGS]", "[CALL_ID]", strips=False)
_ID_END = Markers("[ARGS]", strips=False)


class MistralCalls(CallFormat):
    """Parses both ways. `has_list` says which one the template writes."""

    triggers = ("[TOOL_CALLS]",)
    markers = ("[ARGS]", "[CALL_ID]")

    def __init__(self, *, has_list: bool) -> None:
        self.syntax = (
            CallSyntax('{"name": "', '", "arguments": ', "}", begin="[TOOL_CALLS][", between=", ", end="]")
            if has_list
            else CallSyntax("[TOOL_CALLS]", "[ARGS]", "")
        )

    def parse_calls(self, scanner: Scanner) -> Waiting[None]:
        yield from scanner.spaces()
        if (yield from scanner.peek()) == "[":
            yield from parse_call_list(scanner)
            return
        name = yield from scanner.word(_NAME_ENDS)
        if scanner.word_end == "[CALL_ID]":
            yield from scanner.word(_ID_END)
        yield from parse_named_call(scanner, name)
