"""gpt-oss: a reply is a sequence of messages, each on a channel and some addressed to a tool.

<|channel|>analysis<|message|>The harbour, then.<|end|>
<|start|>assistant<|channel|>commentary to=functions.look_up <|constrain|>json<|message|>{"place": "harbour"}<|call|>
<|start|>assistant<|channel|>final<|message|>It is calm.<|return|>

The prompt ends with `<|start|>assistant`, inside the first header.
"""

import re

from leftoff.chat.formats.base import CallSyntax, OutputFormat
from leftoff.chat.formats.json_calls import parse_named_call
from leftoff.chat.formats.scanner import Emit, Markers, MismatchError, Scanner, Waiting
from leftoff.types import ReasoningTags

_START, _CHANNEL, _MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>")
_MARKERS = Markers(_START, _CHANNEL, *_ENDS, strips=False)
_HEADER_ENDS = Markers(_MESSAGE, _START, *_ENDS, strips=False)
_HEADER = re.compile(
    r"(?:to=(?P<to>[\w.:/-]+))?\s*(?:<\|channel\|>\s*(?P<channel>analysis|commentary|final))?"
    r"\s*(?:to=(?P<also_to>[\w.:/-]+))?\s*(?:<\|constrain\|>)?\s*[a-z]*\s*"
)


class HarmonyFormat(OutputFormat):
    """Replies of gpt-oss: messages on channels, some of them calls."""

    name = "harmony"
    syntax = CallSyntax(
        "<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", "<|call|>", between="<|start|>assistant"
    )
    reasoning = ReasoningTags("<|channel|>analysis<|message|>", "<|end|><|start|>assistant")
    before_content = "<|channel|>final<|message|>"
    trigger = "<|channel|>commentary to="
    markers = (_START, _CHANNEL, _MESSAGE, "<|constrain|>", *_ENDS)

    def parse(self, scanner: Scanner) -> Waiting[None]:
        while (yield from scanner.peek()):
            header = yield from self._parse_header(scanner)
            if header is None:
                yield from scanner.until(_MARKERS, scanner.emit_content)
            else:
                yield from self._parse_body(scanner, header)

    def _parse_header(self, scanner: Scanner) -> Waiting[re.Match[str] | None]:
        """Skips the header of a message and returns it; None if there is none here."""
        scanner.mark()
        try:
            header = _HEADER.fullmatch((yield from self._header_text(scanner)))
        except MismatchError:
            header = None
            if scanner.is_cut and scanner.at == len(scanner.text):  # it was cut off inside a header
                scanner.drop_rest()
        if header is None:
            scanner.rewind()
        scanner.unmark()
        return header

    def _header_text(self, scanner: Scanner) -> Waiting[str]:
        for word in (_START, "assistant"):
            yield from scanner.spaces()
            yield from scanner.accept(word)
        yield from scanner.spaces()
        if (yield from scanner.accept(_MESSAGE)):
            return ""
        for word in ("to=", _CHANNEL):
            if (yield from scanner.accept(word)):
                taken = [word]
                if (yield from scanner.until(_HEADER_ENDS, taken.append)) == _MESSAGE:
                    return "".join(taken)
        raise MismatchError

    def _parse_body(self, scanner: Scanner, header: re.Match[str]) -> Waiting[None]:
        recipient = header["to"] or header["also_to"]
        emit: Emit = scanner.emit_content
        if recipient and scanner.tools:
            yield from self._parse_call(scanner, recipient.removeprefix("functions."))
        elif header["channel"] == "analysis" and scanner.splits_reasoning:
            emit = scanner.emit_reasoning
        end = yield from scanner.until(_MARKERS, emit)
        if end in (_START, _CHANNEL):  # the end is missing: this belongs to the next message
            scanner.at -= len(end)

    def _parse_call(self, scanner: Scanner, name: str) -> Waiting[None]:
        scanner.mark()
        try:
            yield from parse_named_call(scanner, name)
        except MismatchError:
            scanner.rewind()
            return
        scanner.unmark()
        yield from scanner.spaces()
        scanner.end_call()
