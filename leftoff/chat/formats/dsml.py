# ruff: noqa: RUF001, RUF002 - these bars are what the models were trained on
"""The way of DeepSeek V3.2 and V4.

<｜DSML｜tool_calls>
<｜DSML｜invoke name="look_up">
<｜DSML｜parameter name="place" string="true">harbour</｜DSML｜parameter>
</｜DSML｜invoke>
</｜DSML｜tool_calls>
"""

from dataclasses import dataclass

from leftoff.chat.formats.base import CallSyntax, ParameterSyntax
from leftoff.chat.formats.parameters import TEXT, ArgumentsWriter, ValueWriter, read_value
from leftoff.chat.formats.scanner import Markers, NotSoError, Reading, Waiting
from leftoff.chat.formats.tagged import CallFormat
from leftoff.chat.formats.tools import ANY, Tools

NAME = "｜DSML｜"
_INVOKE, _INVOKE_END = '<｜DSML｜invoke name="', "</｜DSML｜invoke>"
_PARAMETER, _PARAMETER_END = '<｜DSML｜parameter name="', "</｜DSML｜parameter>"
_NAME_END = Markers('">', strips=False)
_IS_TEXT, _IS_JSON = '" string="true">', '" string="false">'
_KEY_ENDS = Markers(_IS_TEXT, _IS_JSON, strips=False)
_VALUE_END = Markers(_PARAMETER_END, strips=False)


@dataclass(frozen=True)
class _Parameter:
    key: str
    is_text: bool


class DsmlCalls(CallFormat):
    """`block` is the name of what stands around calls."""

    markers = (NAME,)

    def __init__(self, block: str) -> None:
        self.triggers = (f"<｜DSML｜{block}>",)
        self._end = f"</｜DSML｜{block}>"
        parameter = ParameterSyntax(_PARAMETER, _IS_JSON, _PARAMETER_END + "\n", after_text_key=_IS_TEXT)
        self.syntax = CallSyntax(
            _INVOKE, '">\n', _INVOKE_END + "\n", begin=self.triggers[0] + "\n", end=self._end, parameter=parameter
        )

    def read_calls(self, reading: Reading, tools: Tools, trigger: str) -> Waiting[None]:  # noqa: ARG002
        yield from reading.expect(_INVOKE)
        yield from reading.calls(self._read_call, _INVOKE)
        yield from reading.expect(self._end)

    def _read_call(self, reading: Reading) -> Waiting[None]:
        name = yield from reading.word(_NAME_END)
        parameter = yield from self._read_key(reading)
        reading.start_call(name)
        arguments = ArgumentsWriter(reading)
        while parameter is not None:
            arguments.key(parameter.key)
            value = ValueWriter(reading.say_arguments, TEXT if parameter.is_text else ANY - TEXT)
            yield from read_value(reading, _VALUE_END, value)
            value.end()
            reading.hold()
            parameter = yield from self._read_key(reading)
            reading.let_go()
        arguments.end()
        reading.hold()

    def _read_key(self, reading: Reading) -> Waiting[_Parameter | None]:
        """Of the next parameter; None if the call ends here."""
        yield from reading.spaces()
        if not (yield from reading.literal(_PARAMETER)):
            yield from reading.expect(_INVOKE_END)
            return None
        taken: list[str] = []
        kind = yield from reading.until(_KEY_ENDS, taken.append)
        if kind is None:
            raise NotSoError
        return _Parameter("".join(taken), kind == _IS_TEXT)
