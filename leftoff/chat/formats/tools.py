"""The tools that were offered with a request, as far as reading calls needs them."""

from collections.abc import Iterable, Mapping
from typing import Any

from leftoff.chat.template.render import ToolDict

ANY = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})


class Tools:
    """Some formats write a text and a number alike: only the tool's schema tells them apart."""

    def __init__(self, tools: Iterable[ToolDict] | None = None) -> None:
        self._parameters = {str(_function(tool).get("name")): _properties(tool) for tool in tools or ()}
        self.names = frozenset(self._parameters)

    def __bool__(self) -> bool:
        return bool(self._parameters)

    def kinds(self, name: str, parameter: str) -> frozenset[str]:
        """The JSON types that a parameter may have; all of them if nothing is said."""
        return _kinds(self._parameters.get(name, {}).get(parameter))


def _function(tool: ToolDict) -> Mapping[str, Any]:
    function = tool.get("function")
    return function if isinstance(function, Mapping) else tool


def _properties(tool: ToolDict) -> Mapping[str, Any]:
    schema = _function(tool).get("parameters")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return properties if isinstance(properties, Mapping) else {}


def _kinds(schema: Any) -> frozenset[str]:  # noqa: ANN401
    if not isinstance(schema, Mapping):
        return ANY
    if "type" in schema:
        kind = schema["type"]
        return frozenset(map(str, kind)) if isinstance(kind, list) else frozenset({str(kind)})
    if "enum" in schema or "const" in schema:
        values = schema["enum"] if isinstance(schema.get("enum"), list) else [schema.get("const")]
        return frozenset({"string"}) if all(isinstance(value, str) for value in values) else ANY
    choices = schema.get("anyOf") or schema.get("oneOf")
    return frozenset().union(*map(_kinds, choices)) if isinstance(choices, list) else ANY
