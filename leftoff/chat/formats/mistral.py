"""The ways of Mistral: a list of JSON objects, and since 2025 one call after another.

[TOOL_CALLS][{"name": "look_up", "arguments": {"place": "harbour"}}]
[TOOL_CALLS]look_up[ARGS]{"place": "harbour"}
"""

from leftoff.chat.formats.base import CallSyntax
from leftoff.chat.formats.json_calls import read_calls, read_named
from leftoff.chat.formats.scanner import Markers, Reading, Waiting
from leftoff.chat.formats.tagged import CallFormat
from leftoff.chat.formats.tools import Tools

_NAME_ENDS = Markers("[ARGS]", "[CALL_ID]", strips=False)
_ID_END = Markers("[ARGS]", strips=False)


class MistralCalls(CallFormat):
    """Reads both ways. `syntax` is the one of the template."""

    triggers = ("[TOOL_CALLS]",)
    markers = ("[ARGS]", "[CALL_ID]")

    def __init__(self, *, has_list: bool) -> None:
        self.syntax = (
            CallSyntax('{"name": "', '", "arguments": ', "}", begin="[TOOL_CALLS][", between=", ", end="]")
            if has_list
            else CallSyntax("[TOOL_CALLS]", "[ARGS]", "")
        )

    def read_calls(self, reading: Reading, tools: Tools, trigger: str) -> Waiting[None]:  # noqa: ARG002
        yield from reading.spaces()
        if (yield from reading.peek()) == "[":
            yield from read_calls(reading)
            return
        taken: list[str] = []
        if (yield from reading.until(_NAME_ENDS, taken.append)) == "[CALL_ID]":
            yield from reading.word(_ID_END)
        yield from read_named(reading, "".join(taken).strip())
