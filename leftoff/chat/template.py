"""Renders a model's own Jinja chat template, in a sandbox, with what such templates expect."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MessageDict = Mapping[str, Any]

CHATML = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}
"""


class TemplateError(Exception):
    """The template refused the messages, or is itself broken."""


class ChatTemplate:
    """One template. The same messages always render to the same text, but for templates that print the date."""

    def __init__(self, source: str | None, *, bos: str = "", eos: str = "") -> None:
        self.source = source or CHATML
        self._fixed = {"bos_token": bos, "eos_token": eos}
        try:
            self._template = _environment().from_string(self.source)
        except jinja2.TemplateError as error:
            raise TemplateError(f"the chat template cannot be parsed: {error}") from error

    def mentions(self, word: str) -> bool:
        return word in self.source

    def render(
        self,
        messages: Sequence[MessageDict],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> str:
        values = {**self._fixed, **(options or {})}
        try:
            return self._template.render(
                messages=messages,
                tools=tools or None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **values,
            )
        except TemplateError:
            raise
        except Exception as error:  # a template can fail in any way that Python can
            raise TemplateError(f"the chat template cannot render these messages: {error}") from error


class _GenerationBlock(Extension):
    """`{% generation %} … {% endgeneration %}` marks the assistant's words for training; here it is only content."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationBlock]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda layout: datetime.now().astimezone().strftime(layout)
    return environment


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:  # noqa: ANN401
    # Jinja's own filter escapes HTML, which would change what the model reads.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _raise_exception(message: str) -> None:
    raise TemplateError(message)
