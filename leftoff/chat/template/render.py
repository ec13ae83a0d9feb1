"""Renders a model's Jinja chat template, with the functions and filters that such templates expect."""

import copy
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser

from leftoff.chat.template.budget import Budget, LimitError, current, spending
from leftoff.chat.template.sandbox import Sandbox
from leftoff.chat.work import GivenUpError
from leftoff.errors import LeftoffError, reason_of
from leftoff.setting import RESERVED

MessageDict = Mapping[str, Any]
ToolDict = Mapping[str, Any]

CHATML = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}
"""

# Templates have many names for the option to keep the reasoning of earlier turns, or to drop it.
_KEEP_OPTIONS = ("preserve_thinking", "keep_past_thinking")
_DROP_OPTIONS = ("truncate_history_thinking", "drop_thinking", "clear_thinking")
_CHANGES_LISTS = re.compile(r"\.\s*(append|extend|insert|pop)\s*\(")
SECONDS = 10.0  # CPU time; real templates take milliseconds, and at most a second or two
_MAX_SOURCE_CHARACTERS = 256 << 10  # the longest template of a real model has 17 thousand
_MAX_REASON_CHARACTERS = 500
_MAX_DATE_CHARACTERS = 200
_MAX_INDENT = 16
_MAX_SEPARATOR_CHARACTERS = 16
_ESCAPED_CHARACTERS = 6  # that one character may become in JSON
_PARSED_CHARACTERS = 64  # that take as much memory as an object, a list or an item


class TemplateError(LeftoffError):
    """The template refused the messages, or is itself broken."""


class TemplateLimitError(TemplateError):
    """The template was stopped: it took too long, or made too much text."""


class ChatTemplate:
    """One template. Equal messages render to equal text, except in templates that print the date."""

    def __init__(
        self,
        source: str | None,
        *,
        bos: str = "",
        eos: str = "",
        options: Mapping[str, Any] | None = None,
        seconds: float | None = None,
        characters: int = 1 << 28,
    ) -> None:
        """`options` are variables for conversations that do not set them."""
        self.source = source or CHATML
        self._options = options or {}
        self._fixed = {"bos_token": bos, "eos_token": eos, "documents": None}
        self._limits = SECONDS if seconds is None else seconds, characters
        self._changes_lists = bool(_CHANGES_LISTS.search(self.source))
        if len(self.source) > _MAX_SOURCE_CHARACTERS:
            raise TemplateError(
                f"the chat template has {len(self.source):,} characters: {_MAX_SOURCE_CHARACTERS:,} is the most"
            )
        try:
            self._template = _environment(changes_lists=self._changes_lists).from_string(self.source)
        except Exception as error:  # Jinja's, or Python's for the code that Jinja generates
            raise TemplateError(f"the chat template cannot be parsed: {_shortened(reason_of(error))}") from error

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
        values = {
            **self._fixed,
            **_with_synonyms({**self._options, **(options or {})}),
            "messages": list(messages),
            "tools": list(tools) if tools else None,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            with spending(Budget(*self._limits)):
                return self._template.render(copy.deepcopy(values) if self._changes_lists else values)
        except (TemplateError, GivenUpError):
            raise
        except LimitError as error:
            raise TemplateLimitError(f"the model's chat template was stopped: {error}") from error
        except Exception as error:  # a template can fail in any way that Python can
            raise TemplateError(
                f"the chat template cannot render these messages: {_shortened(reason_of(error))}"
            ) from error


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_REASON_CHARACTERS else f"{text[:_MAX_REASON_CHARACTERS]}…"


def _with_synonyms(options: Mapping[str, Any]) -> dict[str, Any]:
    taken = [name for name in RESERVED if name in options]
    if taken:
        raise TemplateError(f"chat_template_kwargs must not set {taken[0]!r}: it has a field of its own")
    keeps = options.get("preserve_thinking")
    if keeps is None:
        return dict(options)
    return {**dict.fromkeys(_KEEP_OPTIONS, keeps), **dict.fromkeys(_DROP_OPTIONS, not keeps), **options}


class _GenerationBlock(Extension):
    """`{% generation %} … {% endgeneration %}` marks the assistant's text for training; here the tags do nothing."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment(*, changes_lists: bool) -> Sandbox:
    environment = Sandbox(
        changes_lists=changes_lists,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[loopcontrols, _GenerationBlock],
    )
    environment.add_filter("tojson", _to_json)
    environment.add_filter("from_json", _from_json)
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _now
    return environment


def _now(layout: str) -> str:
    if not isinstance(layout, str) or len(layout) > _MAX_DATE_CHARACTERS:
        raise TemplateError(f"the chat template prints the date in more than {_MAX_DATE_CHARACTERS} characters")
    return datetime.now().astimezone().strftime(layout)


def _to_json(
    value: Any,  # noqa: ANN401
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes HTML, which would change what the model reads.
    if indent is not None and not 0 <= indent <= _MAX_INDENT:
        raise TemplateError(f"the chat template indents JSON by {indent}: {_MAX_INDENT} is the most")
    if separators is not None and any(len(separator) > _MAX_SEPARATOR_CHARACTERS for separator in separators):
        raise TemplateError(f"the chat template separates JSON by more than {_MAX_SEPARATOR_CHARACTERS} characters")
    budget = current()
    depth = budget.charge_walk(value, times=_ESCAPED_CHARACTERS)
    if indent:
        budget.charge_walk(value, times=indent * depth)
    return _encoder(ensure_ascii, indent, tuple(separators) if separators else None, sort_keys).encode(value)


@lru_cache(16)
def _encoder(
    ensure_ascii: bool, indent: int | None, separators: tuple[str, ...] | None, sort_keys: bool
) -> json.JSONEncoder:
    """A template has few ways to write JSON, and making an encoder takes longer than writing a short text."""
    return json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)  # type: ignore[arg-type]


def _from_json(text: str) -> Any:  # noqa: ANN401
    current().charge(_PARSED_CHARACTERS * sum(map(text.count, "[{,")))
    return json.loads(text)


def _raise_exception(message: object = "") -> None:
    said = _shortened(message) if isinstance(message, str) else f"with a {type(message).__name__}"
    raise TemplateError(f"the chat template refuses these messages: {said}")
