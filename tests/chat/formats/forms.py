"""Every format, a tool, and replies written down as a format's syntax says."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from leftoff.chat.formats.base import CallSyntax, OutputFormat
from leftoff.chat.formats.detect import find_format
from leftoff.chat.formats.parser import Output
from leftoff.chat.formats.parts import Call, CallArguments, CallStart, Content, ParsedReply, Part, Reasoning, join_parts
from leftoff.chat.template.render import ChatTemplate

# A template is known by the tags it writes.
TEMPLATES = {
    "hermes": "<tool_call>",
    "qwen_xml": "<tool_call><function=f><parameter=p>",
    "glm": "<tool_call><arg_key>",
    "mistral": "[TOOL_CALLS][THINK]",
    "mistral with names": "[TOOL_CALLS][ARGS][THINK]",
    "granite": "<|tool_call|>",
    "lfm2": "<|tool_call_start|>",
    "kimi": "<|tool_calls_section_begin|>",
    "deepseek": "<｜tool▁calls▁begin｜>```json",  # noqa: RUF001
    "deepseek without code": "<｜tool▁calls▁begin｜>",  # noqa: RUF001
    "dsml": "｜DSML｜tool_calls>",  # noqa: RUF001
    "gemma": "<|tool_call>call:",
    "harmony": "<|channel|><|message|>",
    "llama": '"name": function name, "parameters": ',
    "generic": "nothing of the kind",
}
FORMATS: dict[str, OutputFormat] = {name: find_format(ChatTemplate(text)) for name, text in TEMPLATES.items()}
BARE = ("llama", "generic")

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "look_up",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string"},
                "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "days": {"type": "integer"},
                "exact": {"type": "boolean"},
                "options": {"type": "object"},
            },
        },
    },
}


@dataclass(frozen=True)
class Reply:
    """What a model wants to say."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()

    @property
    def said(self) -> ParsedReply:
        calls = tuple(Call(name, json.dumps(arguments, ensure_ascii=False)) for name, arguments in self.calls)
        return ParsedReply(self.content, self.reasoning, calls)


def parse(output: Output, pieces: Sequence[str], prompt_end: str = "", *, is_cut: bool = False) -> list[Part]:
    parser = output.parser(prompt_end)
    parts = [part for piece in pieces for part in parser.push(piece)]
    return [*parts, *parser.close(is_cut=is_cut)]


def read(output: Output, text: str, prompt_end: str = "") -> ParsedReply:
    return join_parts(parse(output, [text], prompt_end))


def cut(text: str, sizes: Sequence[int]) -> list[str]:
    """Pieces of these sizes, over and over."""
    pieces: list[str] = []
    while text:
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(text[:size])
        text = text[size:]
    return pieces


def in_order(parts: Sequence[Part]) -> str:
    """All that the parts say, in one text."""
    return "".join(part.name if isinstance(part, CallStart) else part.text for part in parts)


def merged(parts: Sequence[Part]) -> list[Part]:
    """Neighbours of one kind as one: what is left of the pace at which they came."""
    whole: list[Part] = []
    for part in parts:
        match (whole[-1] if whole else None, part):
            case (Content(before), Content(text)):
                whole[-1] = Content(before + text)
            case (Reasoning(before), Reasoning(text)):
                whole[-1] = Reasoning(before + text)
            case (CallArguments(index, before), CallArguments(_, text)):
                whole[-1] = CallArguments(index, before + text)
            case _:
                whole.append(part)
    return whole


def written(name: str, reply: Reply) -> str:
    output_format = FORMATS[name]
    if name == "harmony":
        return _harmony(output_format.syntax, reply)
    thinking = output_format.reasoning
    before = f"{thinking.begin}\n{reply.reasoning}\n{thinking.end}\n\n" if thinking and reply.reasoning else ""
    gap = "\n" if reply.content and reply.calls else ""
    return before + reply.content + gap + _calls(output_format.syntax, reply)


def _harmony(syntax: CallSyntax, reply: Reply) -> str:
    messages = [f"<|channel|>analysis<|message|>{reply.reasoning}<|end|>"] if reply.reasoning else []
    messages += [f"<|channel|>final<|message|>{reply.content}<|end|>"] if reply.content else []
    messages += [_calls(syntax, reply)] if reply.calls else []
    return "<|start|>assistant".join(messages)


def _calls(syntax: CallSyntax, reply: Reply) -> str:
    calls = [
        syntax.before_name + name + syntax.after_name + _arguments(syntax, arguments) + syntax.after_arguments
        for name, arguments in reply.calls
    ]
    return syntax.begin + syntax.between.join(calls) + syntax.end if calls else ""


def _arguments(syntax: CallSyntax, arguments: dict[str, Any]) -> str:
    parameter = syntax.parameter
    if parameter is None:
        return json.dumps(arguments, ensure_ascii=False)
    texts: list[str] = []
    for key, value in arguments.items():
        is_plain = isinstance(value, str) and parameter.plain_strings
        after_key = (is_plain and parameter.after_text_key) or parameter.after_key
        quote = parameter.text_quote
        text = f"{quote}{value}{quote}" if is_plain else json.dumps(value, ensure_ascii=False)
        texts.append(parameter.before_key + key + after_key + text + parameter.after_value)
    return parameter.between.join(texts)
