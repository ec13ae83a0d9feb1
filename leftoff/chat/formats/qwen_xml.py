"""Qwen3-Coder, Qwen3.5 and Nemotron 3.

<tool_call>
<function=look_up>
<parameter=place>
harbour
</parameter>
</function>
</tool_call>
"""

from leftoff.chat.formats.base import CallSyntax, ParameterSyntax
from leftoff.chat.formats.parameters import Parameter, ParameterTags, parse_parameters
from leftoff.chat.formats.scanner import Markers, MismatchError, Scanner, Waiting
from leftoff.chat.formats.tagged import CallFormat

_FUNCTION, _FUNCTION_END = "<function=", "</function>"
_PARAMETER, _PARAMETER_END = "<parameter=", "</parameter>"
_TAG_END = Markers(">", strips=False)
_TAGS = ParameterTags(_PARAMETER, Markers(_PARAMETER_END, "\n" + _PARAMETER_END, strips=False), _FUNCTION_END)


class QwenXmlCalls(CallFormat):
    """Calls of Qwen3-Coder and later: XML-like tags for the function and each parameter."""

    syntax = CallSyntax(
        "<tool_call>\n<function=",
        ">\n",
        "</function>\n</tool_call>",
        between="\n",
        parameter=ParameterSyntax("<parameter=", ">\n", "\n</parameter>\n"),
    )
    triggers = ("<tool_call>", _FUNCTION)
    markers = ("</tool_call>",)

    def parse_calls(self, scanner: Scanner) -> Waiting[None]:
        is_enclosed = scanner.trigger != _FUNCTION  # some models leave the outer tags out
        if is_enclosed:
            yield from scanner.expect(_FUNCTION)
        name = yield from scanner.word(_TAG_END)
        if not is_enclosed and name not in scanner.tools.names:
            raise MismatchError

        def parse_key() -> Waiting[Parameter]:
            key = yield from scanner.word(_TAG_END)
            yield from scanner.accept("\n")
            return Parameter(key, scanner.tools.types(name, key))

        yield from parse_parameters(scanner, name, _TAGS, parse_key, lambda: self._is_at_next_tag(scanner))
        if is_enclosed:
            yield from scanner.expect("</tool_call>")

    def _is_at_next_tag(self, scanner: Scanner) -> Waiting[bool]:
        """Whether a tag that may follow a value comes next, or the end of the reply."""
        scanner.mark()
        try:
            yield from scanner.spaces()
            is_tag = (yield from scanner.accept(_PARAMETER)) or (yield from scanner.accept(_FUNCTION_END))
        except MismatchError:
            is_tag = False
        is_tag = is_tag or (scanner.is_ended and scanner.at == len(scanner.text))
        scanner.rewind()
        return is_tag
