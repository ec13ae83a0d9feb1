"""Grammars for tool calls, in the syntax of the model's output format, and the choice of tools they cover."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leftoff.chat.formats.base import CallSyntax, ParameterSyntax
from leftoff.chat.formats.offered_tools import OfferedTools, function_of
from leftoff.chat.formats.parser import Output
from leftoff.chat.template.render import ToolDict
from leftoff.engine.vocabulary import Vocabulary
from leftoff.grammar.compile import Grammars
from leftoff.grammar.constraint import Trigger
from leftoff.grammar.errors import GrammarError
from leftoff.grammar.grammar import NOTHING, Grammar, any_of, from_schema, literal, text_until
from leftoff.server.http.errors import bad_field
from leftoff.server.request.fields import tool_name

_WORDS = ("auto", "none", "required")
_MAX_CALLS = 16  # in one reply
_SHARED = ("$defs", "definitions")
_SAYS_WHAT_IT_TAKES = frozenset(
    {"properties", "additionalProperties", "patternProperties", "anyOf", "oneOf", "allOf", "$ref"}
)


@dataclass(frozen=True)
class ToolChoice:
    """The tools that may be called. With `must`, the reply consists of calls alone."""

    tools: tuple[ToolDict, ...]
    must: bool = False


def choose_tools(choice: str | Mapping[str, Any] | None, tools: Sequence[ToolDict] | None) -> ToolChoice:
    """Reads `tool_choice`. A choice that names an unknown tool, or has no tools, is refused by the field's name."""
    offered = {tool_name(tool): tool for tool in tools or ()}
    if isinstance(choice, Mapping):
        mode, names = _narrowed(choice)
        return _checked(mode, [_tool(offered, name) for name in names])
    if choice not in (None, *_WORDS):
        raise bad_field("tool_choice", f"is {choice!r}: must be one of {', '.join(_WORDS)}, or name a function")
    return _checked(choice or "auto", [*offered.values()])


def _checked(mode: str, tools: Sequence[ToolDict]) -> ToolChoice:
    if mode == "required" and not tools:
        raise bad_field("tool_choice", "'required' needs tools to choose from: give some, or use 'auto'")
    return ToolChoice(() if mode == "none" else tuple(tools), must=mode == "required")


def _narrowed(choice: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """The mode and names of a choice that names one function, or of OpenAI's list of allowed ones."""
    if choice.get("type") == "allowed_tools":
        inner = choice.get("allowed_tools", choice)
        listed = inner.get("tools") if isinstance(inner, Mapping) else None
        if isinstance(listed, list) and all(isinstance(tool, Mapping) for tool in listed):
            return str(inner.get("mode", "auto")), [function_of(tool).get("name") for tool in listed]
        raise bad_field("tool_choice.allowed_tools.tools", "must be a list of functions")
    return "required", [function_of(choice).get("name")]


def _tool(offered: Mapping[str, ToolDict], name: object) -> ToolDict:
    if not isinstance(name, str):
        raise bad_field("tool_choice", f"must be one of {', '.join(_WORDS)}, or name a function")
    if name not in offered:
        choices = f"must be one of {', '.join(offered)}" if offered else "the request has no tools"
        raise bad_field("tool_choice", f"there is no tool {name!r}: {choices}")
    return offered[name]


class CallGrammar:
    """Builds the grammar of calls. The arguments of a call follow the schema of its tool."""

    def __init__(self, syntax: CallSyntax, tools: Sequence[ToolDict], vocabulary: Vocabulary) -> None:
        self._syntax = syntax
        self._tools = tools
        self._offered = OfferedTools(tools)
        self._vocabulary = vocabulary

    def calls(self, most: int, written: str = "") -> Grammar:
        """One to `most` calls, and nothing else. `written` is the beginning of the first that the reply has already."""
        syntax = self._syntax
        any_call = self._call()
        call = Grammar("call", (f"call: {any_call.expression}", *any_call.rules), any_call.num_fixed)
        if syntax.begin.startswith(written):
            first = self._text(syntax.begin.removeprefix(written)) + call
        else:
            first = self._call(written.removeprefix(syntax.begin))
        others = (self._text(syntax.between) + call).repeated(most - 1) if most > 1 else NOTHING
        return first + others + self._text(syntax.end)

    def _call(self, written: str = "") -> Grammar:
        return any_of([self._call_of(function_of(tool), written) for tool in self._tools])

    def _call_of(self, function: Mapping[str, Any], written: str) -> Grammar:
        syntax = self._syntax
        head = f"{syntax.before_name}{function['name']}{syntax.after_name}".removeprefix(written)
        return self._text(head) + self._arguments(function) + self._text(syntax.after_arguments)

    def _arguments(self, function: Mapping[str, Any]) -> Grammar:
        schema = _parameters_of(function)
        if self._syntax.parameter is None:
            return from_schema(schema, lenient=function.get("strict") is not True)
        return self._parameters(self._syntax.parameter, function["name"], schema)

    def _parameters(self, syntax: ParameterSyntax, name: str, schema: Mapping[str, Any]) -> Grammar:
        """Parameters in the schema's order. Optional ones may be left out, with the separator before them."""
        required = schema.get("required", ())
        shared = {key: schema[key] for key in _SHARED if key in schema}
        between = self._text(syntax.between)
        later, firsts = NOTHING, [NOTHING]  # the rest, after another parameter; with what the whole may begin
        for key, value in reversed(schema.get("properties", {}).items()):
            inner = {**shared, **value} if isinstance(value, Mapping) else {}
            parameter = self._parameter(syntax, name, key, inner)
            following = between + parameter
            if key in required:
                later, firsts = (following + later).named(), [parameter + later]
            elif syntax.between:
                later, firsts = (following.optional() + later).named(), [parameter + later, *firsts]
            else:
                firsts = [parameter.optional() + any_of(firsts)]
                (later,) = firsts
        return any_of(firsts)

    def _parameter(self, syntax: ParameterSyntax, name: str, key: str, schema: Mapping[str, Any]) -> Grammar:
        if syntax.plain_strings and "string" in self._offered.types(name, key):
            quote = syntax.text_quote
            head = self._text(f"{syntax.before_key}{key}{syntax.after_text_key or syntax.after_key}{quote}")
            return head + self._plain_string(schema, quote + syntax.after_value)
        head = self._text(f"{syntax.before_key}{key}{syntax.after_key}")
        return head + from_schema(schema, lenient=True) + self._text(syntax.after_value)

    def _plain_string(self, schema: Mapping[str, Any], end: str) -> Grammar:
        choices = schema["enum"] if isinstance(schema.get("enum"), list) else [schema.get("const")]
        texts = [self._text(f"{choice}{end}") for choice in choices if isinstance(choice, str)]
        return any_of(texts) if texts else text_until(end, self._vocabulary)

    def _text(self, text: str) -> Grammar:
        return literal(text, self._vocabulary)


class ToolGrammars:
    """Compiles the grammars of a request's tools. One with an unsupported schema takes any object, unless `strict`."""

    def __init__(
        self, grammars: Grammars, output: Output, tools: Sequence[ToolDict], place_of: Callable[[str], str]
    ) -> None:
        """`place_of` maps a tool's name to the path of its schema, for error messages."""
        self._grammars = grammars
        self._format = output.format
        self._tools = tools
        self._place_of = place_of
        self._most = 1 if output.one_call else _MAX_CALLS

    def calls(self) -> Grammar:
        """The grammar of a reply that consists of calls."""
        return self._compiled(lambda calls: calls.calls(self._most))

    def triggers(self) -> tuple[Trigger, ...]:
        """The text that begins a call, and the grammar after it; empty if the format has no such text."""
        trigger, syntax = self._format.trigger, self._format.syntax
        if not trigger or not (syntax.begin + syntax.before_name).startswith(trigger):
            return ()
        most = self._most if syntax.end else 1  # without an end, the next call has a trigger of its own
        return (Trigger(trigger, self._compiled(lambda calls: calls.calls(most, trigger))),)

    def _compiled(self, make: Callable[[CallGrammar], Grammar]) -> Grammar:
        try:
            return self._compile(make, self._tools)
        except GrammarError:
            return self._compile(make, [self._bearable(make, tool) for tool in self._tools])

    def _compile(self, make: Callable[[CallGrammar], Grammar], tools: Sequence[ToolDict]) -> Grammar:
        grammar = make(CallGrammar(self._format.syntax, tools, self._grammars.vocabulary))
        self._grammars.compile(grammar)
        return grammar

    def _bearable(self, make: Callable[[CallGrammar], Grammar], tool: ToolDict) -> ToolDict:
        try:
            self._compile(make, [tool])
        except GrammarError as error:
            function = function_of(tool)
            if function.get("strict") is True:
                raise bad_field(self._place_of(function["name"]), str(error)) from error
            return {"name": function["name"], "parameters": {"additionalProperties": True}}
        return tool


def _parameters_of(function: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a tool's arguments. Without parameters it takes none; invalid parts are ignored."""
    given = function.get("parameters")
    schema = {"type": "object", **given} if isinstance(given, Mapping) else {"type": "object"}
    if not isinstance(schema.get("properties", {}), Mapping) or not isinstance(schema.get("required", []), list):
        schema = {key: value for key, value in schema.items() if key not in ("properties", "required")}
    return schema if schema.keys() & _SAYS_WHAT_IT_TAKES else {**schema, "additionalProperties": False}
