"""Llama 3: the reply is a call, or several with semicolons between them.

{"name": "look_up", "parameters": {"place": "harbour"}}
"""

from functools import partial

from leftoff.chat.formats.base import CallSyntax
from leftoff.chat.formats.json_calls import parse_call
from leftoff.chat.formats.scanner import Scanner, Waiting
from leftoff.chat.formats.tagged import CallFormat


class LlamaCalls(CallFormat):
    """Any reply may be JSON, so it is a call only if it names a tool that was offered."""

    syntax = CallSyntax('{"name": "', '", "parameters": ', "}", between="; ")
    triggers = ("<|python_tag|>",)
    is_bare = True

    def parse_calls(self, scanner: Scanner) -> Waiting[None]:
        yield from scanner.calls(partial(parse_call, names=scanner.tools.names), ";")
