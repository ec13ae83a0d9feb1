"""The way of Llama 3: the reply is the call, or several with semicolons between them.

{"name": "look_up", "parameters": {"place": "harbour"}}
"""

from functools import partial

from leftoff.chat.formats.base import CallSyntax
from leftoff.chat.formats.json_calls import read_call
from leftoff.chat.formats.scanner import Reading, Waiting
from leftoff.chat.formats.tagged import CallFormat
from leftoff.chat.formats.tools import Tools


class LlamaCalls(CallFormat):
    """Any reply may be JSON: it is a call only of a tool that was offered."""

    syntax = CallSyntax('{"name": "', '", "parameters": ', "}", between="; ")
    triggers = ("<|python_tag|>",)
    is_bare = True

    def read_calls(self, reading: Reading, tools: Tools, trigger: str) -> Waiting[None]:  # noqa: ARG002
        yield from reading.calls(partial(read_call, names=tools.names), ";")
