# ruff: noqa: RUF001, RUF002 - these bars are what the models were trained on
"""DeepSeek: JSON arguments up to V3.1, one parameter after another (DSML) since V3.2.

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>look_up<｜tool▁sep｜>{"place": "harbour"}<｜tool▁call▁end｜>
    <｜tool▁calls▁end｜>

V3 and R1 write `function`, a separator, the name, and the arguments as a block of code.

    <｜DSML｜tool_calls>
    <｜DSML｜invoke name="look_up">
    <｜DSML｜parameter name="place" string="true">harbour</｜DSML｜parameter>
    </｜DSML｜invoke>
    </｜DSML｜tool_calls>
"""

from leftoff.chat.formats.base import CallSyntax, ParameterSyntax
from leftoff.chat.formats.json_calls import parse_named_call
from leftoff.chat.formats.offered_tools import ANY_TYPE
from leftoff.chat.formats.parameters import STRING, Parameter, ParameterTags, parse_parameters
from leftoff.chat.formats.scanner import Markers, Scanner, Waiting
from leftoff.chat.formats.tagged import CallFormat

BEGIN, _END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_CALL, _CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
_SEPARATOR = "<｜tool▁sep｜>"
_SEPARATOR_MARKER = Markers(_SEPARATOR, strips=False)
_CODE = "\n```json\n"
_CODE_MARKER = Markers(_CODE, strips=False)

DSML = "｜DSML｜"
_INVOKE, _INVOKE_END = '<｜DSML｜invoke name="', "</｜DSML｜invoke>"
_PARAMETER, _PARAMETER_END = '<｜DSML｜parameter name="', "</｜DSML｜parameter>"
_NAME_END = Markers('">', strips=False)
_IS_STRING, _IS_JSON = '" string="true">', '" string="false">'
_KEY_ENDS = Markers(_IS_STRING, _IS_JSON, strips=False)
_TAGS = ParameterTags(_PARAMETER, Markers(_PARAMETER_END, strips=False), _INVOKE_END)


class DeepSeekCalls(CallFormat):
    """Calls up to V3.1. Parses both ways; `has_code` says that the template writes as V3 and R1 do."""

    triggers = (BEGIN,)
    markers = (_END, _CALL, _CALL_END, _SEPARATOR)

    def __init__(self, *, has_code: bool) -> None:
        before_name = _CALL + ("function" + _SEPARATOR if has_code else "")
        after_name, after_arguments = (_CODE, "\n```" + _CALL_END) if has_code else (_SEPARATOR, _CALL_END)
        between = "\n" if has_code else ""
        self.syntax = CallSyntax(before_name, after_name, after_arguments, begin=BEGIN, between=between, end=_END)

    def parse_calls(self, scanner: Scanner) -> Waiting[None]:
        yield from scanner.expect(_CALL)
        yield from scanner.calls(self._parse_call, _CALL)
        yield from scanner.expect(_END)

    def _parse_call(self, scanner: Scanner) -> Waiting[None]:
        name = yield from scanner.word(_SEPARATOR_MARKER)
        if has_code := name == "function":
            name = yield from scanner.word(_CODE_MARKER)
        yield from parse_named_call(scanner, name)
        yield from scanner.expect(*(["```"] if has_code else []), _CALL_END)
        scanner.mark()


class DsmlCalls(CallFormat):
    """Calls since V3.2. `block` is the name of the tag around all calls."""

    markers = (DSML,)

    def __init__(self, block: str) -> None:
        begin, self._end = f"<｜DSML｜{block}>", f"</｜DSML｜{block}>"
        self.triggers = (begin,)
        parameter = ParameterSyntax(_PARAMETER, _IS_JSON, _PARAMETER_END + "\n", after_text_key=_IS_STRING)
        self.syntax = CallSyntax(
            _INVOKE, '">\n', _INVOKE_END + "\n", begin=begin + "\n", end=self._end, parameter=parameter
        )

    def parse_calls(self, scanner: Scanner) -> Waiting[None]:
        yield from scanner.expect(_INVOKE)
        yield from scanner.calls(self._parse_call, _INVOKE)
        yield from scanner.expect(self._end)

    def _parse_call(self, scanner: Scanner) -> Waiting[None]:
        name = yield from scanner.word(_NAME_END)
        yield from parse_parameters(scanner, name, _TAGS, lambda: self._parse_key(scanner))

    def _parse_key(self, scanner: Scanner) -> Waiting[Parameter]:
        key = yield from scanner.word(_KEY_ENDS)
        return Parameter(key, STRING if scanner.word_end == _IS_STRING else ANY_TYPE - STRING)
