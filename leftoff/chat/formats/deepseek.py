# ruff: noqa: RUF001, RUF002 - these bars are what the models were trained on
"""The ways of DeepSeek V3 and R1, and of V3.1.

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>look_up<｜tool▁sep｜>{"place": "harbour"}<｜tool▁call▁end｜>
    <｜tool▁calls▁end｜>

The earlier ones write `function` for the name, then the name, and the arguments as a block of code.
"""

from leftoff.chat.formats.base import CallSyntax
from leftoff.chat.formats.json_calls import read_named
from leftoff.chat.formats.scanner import Markers, Reading, Waiting
from leftoff.chat.formats.tagged import CallFormat
from leftoff.chat.formats.tools import Tools

BEGIN, _END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_CALL, _CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
_SEPARATOR = "<｜tool▁sep｜>"
_NAME_END = Markers(_SEPARATOR, strips=False)
_CODE = "\n```json\n"
_CODE_BEGIN = Markers(_CODE, strips=False)


class DeepSeekCalls(CallFormat):
    """`has_code`: as V3 and R1. Both are read."""

    triggers = (BEGIN,)
    markers = (_END, _CALL, _CALL_END, _SEPARATOR)

    def __init__(self, *, has_code: bool) -> None:
        before_name = _CALL + ("function" + _SEPARATOR if has_code else "")
        after_name, after_arguments = (_CODE, "\n```" + _CALL_END) if has_code else (_SEPARATOR, _CALL_END)
        between = "\n" if has_code else ""
        self.syntax = CallSyntax(before_name, after_name, after_arguments, begin=BEGIN, between=between, end=_END)

    def read_calls(self, reading: Reading, tools: Tools, trigger: str) -> Waiting[None]:  # noqa: ARG002
        yield from reading.expect(_CALL)
        yield from reading.calls(self._read_call, _CALL)
        yield from reading.expect(_END)

    def _read_call(self, reading: Reading) -> Waiting[None]:
        name = yield from reading.word(_NAME_END)
        if has_code := name == "function":
            name = yield from reading.word(_CODE_BEGIN)
        yield from read_named(reading, name)
        yield from reading.expect(*(["```"] if has_code else []), _CALL_END)
        reading.hold()
