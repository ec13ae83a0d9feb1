"""GLM 4.5 and later.

<tool_call>look_up
<arg_key>place</arg_key>
<arg_value>harbour</arg_value>
</tool_call>
"""

from leftoff.chat.formats.base import CallSyntax, ParameterSyntax
from leftoff.chat.formats.parameters import Parameter, ParameterTags, parse_parameters
from leftoff.chat.formats.scanner import Markers, Scanner, Waiting
from leftoff.chat.formats.tagged import CallFormat

_NAME_ENDS = Markers("<arg_key>", "</tool_call>")
_KEY_END = Markers("</arg_key>", strips=False)
_TAGS = ParameterTags("<arg_key>", Markers("</arg_value>", strips=False), "</tool_call>")


class GlmCalls(CallFormat):
    """Calls of GLM 4.5: a name, then each argument as a key and a value between tags."""

    syntax = CallSyntax(
        "<tool_call>",
        "\n",
        "</tool_call>",
        between="\n",
        parameter=ParameterSyntax("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n"),
    )
    triggers = ("<tool_call>",)
    markers = ("</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")

    def parse_calls(self, scanner: Scanner) -> Waiting[None]:
        name = yield from scanner.word(_NAME_ENDS)
        scanner.at -= len(scanner.word_end)

        def parse_key() -> Waiting[Parameter]:
            key = yield from scanner.word(_KEY_END)
            yield from scanner.expect("<arg_value>")
            return Parameter(key, scanner.tools.types(name, key))

        yield from parse_parameters(scanner, name, _TAGS, parse_key)
