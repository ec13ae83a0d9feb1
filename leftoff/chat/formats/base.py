"""The interface of output formats: the syntax of tool calls, for grammars, and a parser of replies."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from leftoff.chat.formats.scanner import Scanner, Waiting
from leftoff.chat.template.render import ToolDict
from leftoff.types import ReasoningTags

ANY_TYPE = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})


@dataclass(frozen=True)
class ParameterSyntax:
    """`before_key` key `after_key` value `after_value`, with `between` between parameters.

    Values are JSON. With `plain_strings`, strings are written without JSON's quotes and escapes, between two
    `text_quote`, and after `after_text_key` instead of `after_key` if that is set.
    """

    before_key: str
    after_key: str
    after_value: str
    between: str = ""
    plain_strings: bool = True
    after_text_key: str = ""
    text_quote: str = ""


@dataclass(frozen=True)
class CallSyntax:
    """`begin`, one or more calls with `between` between them, `end`.

    A call is `before_name` name `after_name` arguments `after_arguments`. The arguments are a JSON object, or one
    parameter after another as `parameter` says.
    """

    before_name: str
    after_name: str
    after_arguments: str
    begin: str = ""
    between: str = ""
    end: str = ""
    parameter: ParameterSyntax | None = None


class OfferedTools:
    """The names of a request's tools, and the types of their parameters.

    Some formats write the string "3" and the number 3 alike: only the tool's schema tells which it is.
    """

    def __init__(self, tools: Iterable[ToolDict] = ()) -> None:
        self._parameters = {str(function_of(tool).get("name")): _properties(tool) for tool in tools}
        self.names = frozenset(self._parameters)

    def __bool__(self) -> bool:
        return bool(self._parameters)

    def types(self, name: str, parameter: str) -> frozenset[str]:
        """The JSON types that a parameter may have; all of them if its schema does not say."""
        return _types(self._parameters.get(name, {}).get(parameter))


@dataclass(frozen=True)
class ParseOptions:
    """How to parse one reply."""

    tools: OfferedTools
    splits_reasoning: bool = True
    begins_in_reasoning: bool = False


class OutputFormat(ABC):
    """How a model family writes reasoning, content and tool calls. Knows no request."""

    name: str
    syntax: CallSyntax
    reasoning: ReasoningTags | None
    before_content: str = ""  # what the model must write before content
    trigger: str  # the text that begins a call; empty if a call may begin without one
    markers: tuple[str, ...]  # all texts that the parser looks for: control tokens with these are shown to it

    @abstractmethod
    def parse(self, scanner: Scanner, options: ParseOptions) -> Waiting[None]:
        """Parses a reply to its end."""


def function_of(tool: ToolDict) -> Mapping[str, Any]:
    """The function of a tool as OpenAI writes it, or the tool itself if it is already one."""
    function = tool.get("function")
    return function if isinstance(function, Mapping) else tool


def _properties(tool: ToolDict) -> Mapping[str, Any]:
    schema = function_of(tool).get("parameters")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return properties if isinstance(properties, Mapping) else {}


def _types(schema: Any) -> frozenset[str]:  # noqa: ANN401
    if not isinstance(schema, Mapping):
        return ANY_TYPE
    if "type" in schema:
        given = schema["type"]
        return frozenset(map(str, given)) if isinstance(given, list) else frozenset({str(given)})
    if "enum" in schema or "const" in schema:
        values = schema["enum"] if isinstance(schema.get("enum"), list) else [schema.get("const")]
        return frozenset({"string"}) if all(isinstance(value, str) for value in values) else ANY_TYPE
    choices = schema.get("anyOf") or schema.get("oneOf")
    return frozenset().union(*map(_types, choices)) if isinstance(choices, list) else ANY_TYPE
