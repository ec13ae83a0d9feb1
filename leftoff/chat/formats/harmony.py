"""The way of gpt-oss: a reply is a row of messages, each on a channel, some to a tool.

<|channel|>analysis<|message|>The harbour, then.<|end|>
<|start|>assistant<|channel|>commentary to=functions.look_up <|constrain|>json<|message|>{"place": "harbour"}<|call|>
<|start|>assistant<|channel|>final<|message|>It is calm.<|return|>

The prompt ends with `<|start|>assistant`: the first header has begun.
"""

import re

from leftoff.chat.formats.base import CallSyntax, OutputFormat, Thinking, Wanted
from leftoff.chat.formats.json_calls import read_named
from leftoff.chat.formats.scanner import Markers, NotSoError, Reading, Say, Waiting

_START, _CHANNEL, _MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>")
_MARKERS = Markers(_START, _CHANNEL, *_ENDS, strips=False)
_HEADER_ENDS = Markers(_MESSAGE, _START, *_ENDS, strips=False)
_HEADER = re.compile(
    r"(?:to=(?P<to>[\w.:/-]+))?\s*(?:<\|channel\|>\s*(?P<channel>analysis|commentary|final))?"
    r"\s*(?:to=(?P<also_to>[\w.:/-]+))?\s*(?:<\|constrain\|>)?\s*[a-z]*\s*"
)


class HarmonyFormat(OutputFormat):
    name = "harmony"
    syntax = CallSyntax(
        "<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", "<|call|>", between="<|start|>assistant"
    )
    thinking = Thinking("<|channel|>analysis<|message|>", "<|end|><|start|>assistant")
    before_content = "<|channel|>final<|message|>"
    trigger = "<|channel|>commentary to="
    markers = (_START, _CHANNEL, _MESSAGE, "<|constrain|>", *_ENDS)

    def read(self, reading: Reading, wanted: Wanted) -> Waiting[None]:
        while (yield from reading.peek()):
            header = yield from self._read_header(reading)
            if header is None:
                yield from reading.until(_MARKERS, reading.say_content)
            else:
                yield from self._read_body(reading, wanted, header)

    def _read_header(self, reading: Reading) -> Waiting[re.Match[str] | None]:
        """What stands before a message; None if none begins here."""
        reading.hold()
        try:
            header = _HEADER.fullmatch((yield from self._read_words(reading)))
        except NotSoError:
            header = None
        if header is None:
            reading.go_back()
        reading.let_go()
        return header

    def _read_words(self, reading: Reading) -> Waiting[str]:
        for word in (_START, "assistant"):
            yield from reading.spaces()
            yield from reading.literal(word)
        yield from reading.spaces()
        if (yield from reading.literal(_MESSAGE)):
            return ""
        for word in ("to=", _CHANNEL):
            if (yield from reading.literal(word)):
                taken = [word]
                if (yield from reading.until(_HEADER_ENDS, taken.append)) == _MESSAGE:
                    return "".join(taken)
        raise NotSoError

    def _read_body(self, reading: Reading, wanted: Wanted, header: re.Match[str]) -> Waiting[None]:
        recipient = header["to"] or header["also_to"]
        say: Say = reading.say_content
        if recipient and wanted.tools:
            yield from self._read_call(reading, recipient.removeprefix("functions."))
        elif header["channel"] == "analysis" and wanted.splits_reasoning:
            say = reading.say_reasoning
        end = yield from reading.until(_MARKERS, say)
        if end in (_START, _CHANNEL):  # of the next message, whose end is missing here
            reading.at -= len(end)

    def _read_call(self, reading: Reading, name: str) -> Waiting[None]:
        reading.hold()
        try:
            yield from read_named(reading, name)
        except NotSoError:
            reading.go_back()
            return
        reading.let_go()
        yield from reading.spaces()
        reading.end_call()
