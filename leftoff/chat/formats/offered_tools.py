"""The tools of a request, as far as the parser of a reply must know them."""

from collections.abc import Iterable, Mapping
from typing import Any

from leftoff.chat.template.render import ToolDict

ANY_TYPE = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})


class OfferedTools:
    """The names of a request's tools, and the types of their parameters.

    Some formats write the string "3" and the number 3 alike: only the tool's schema tells which it is.
    """

    def __init__(self, tools: Iterable[ToolDict]) -> None:
        self._parameters = {str(function_of(tool).get("name")): _properties(tool) for tool in tools}
        self.names = frozenset(self._parameters)

    def __bool__(self) -> bool:
        return bool(self._parameters)

    def types(self, name: str, parameter: str) -> frozenset[str]:
        """The JSON types that a parameter may have; all of them if its schema does not say."""
        return _types(self._parameters.get(name, {}).get(parameter))


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
