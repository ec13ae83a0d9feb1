"""Renders a model's own Jinja chat template, in a sandbox, with what such templates expect."""

import copy
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser

from leftoff.chat.sandbox import Budget, Sandbox, spending
from leftoff.chat.work import GivenUpError

MessageDict = Mapping[str, Any]
ToolDict = Mapping[str, Any]

CHATML = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}
"""

_OURS = ("messages", "tools", "add_generation_prompt")
# Templates have many names for keeping the reasoning of earlier turns, some for the opposite.
_KEEPS_THINKING = ("preserve_thinking", "keep_past_thinking")
_DROPS_THINKING = ("truncate_history_thinking", "drop_thinking", "clear_thinking")
_CHANGES_LISTS = re.compile(r"\.(append|extend|insert|pop)\(")


class TemplateError(Exception):
    """The template refused the messages, or is itself broken."""


class ChatTemplate:
    """One template. The same messages always render to the same text, but for templates that print the date."""

    def __init__(
        self,
        source: str | None,
        *,
        bos: str = "",
        eos: str = "",
        seconds: float = 60.0,
        characters: int = 1 << 28,
    ) -> None:
        self.source = source or CHATML
        self._fixed = {"bos_token": bos, "eos_token": eos, "documents": None}
        self._limits = seconds, characters
        self._changes_lists = bool(_CHANGES_LISTS.search(self.source))
        try:
            self._template = _environment().from_string(self.source)
        except (jinja2.TemplateError, RecursionError) as error:
            raise TemplateError(f"the chat template cannot be parsed: {error}") from error

    def mentions(self, word: str) -> bool:
        return word in self.source

    def render(
        self,
        messages: Sequence[MessageDict],
        *,
        tools: Sequence[ToolDict] | None = None,
        add_generation_prompt: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> str:
        given = [list(messages), list(tools) if tools else None]
        values = {
            **self._fixed,
            **_with_synonyms(options or {}),
            **dict(zip(_OURS, copy.deepcopy(given) if self._changes_lists else given, strict=False)),
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            with spending(Budget(*self._limits)):
                return self._template.render(values)
        except (TemplateError, GivenUpError):
            raise
        except Exception as error:  # a template can fail in any way that Python can
            reason = str(error) or type(error).__name__
            raise TemplateError(f"the chat template cannot render these messages: {reason}") from error


def _with_synonyms(options: Mapping[str, Any]) -> dict[str, Any]:
    taken = [name for name in _OURS if name in options]
    if taken:
        raise TemplateError(f"chat_template_kwargs must not set {taken[0]!r}: it has a field of its own")
    keeps = options.get("preserve_thinking")
    if keeps is None:
        return dict(options)
    return {**dict.fromkeys(_KEEPS_THINKING, keeps), **dict.fromkeys(_DROPS_THINKING, not keeps), **options}


class _GenerationBlock(Extension):
    """`{% generation %} … {% endgeneration %}` marks the assistant's words for training; here it is only content."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> Sandbox:
    environment = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationBlock])
    environment.add_filter("tojson", _to_json)
    environment.add_filter("from_json", json.loads)
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _now
    return environment


def _now(layout: str) -> str:
    return datetime.now().astimezone().strftime(layout)


def _to_json(
    value: Any,  # noqa: ANN401
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes HTML, which would change what the model reads.
    if indent is not None and not 0 <= indent <= 16:
        raise TemplateError(f"the chat template indents JSON by {indent}: 16 is the most")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise TemplateError(f"the chat template refuses these messages: {message}")
