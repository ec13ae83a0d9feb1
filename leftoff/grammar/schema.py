"""JSON schemas on their way to a grammar: what is refused before a compiler sees it, and what is left unsaid."""

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from leftoff.grammar.errors import GrammarError

Schema = Mapping[str, Any]

MAX_DEPTH = 64
MAX_DIVISOR = 10_000
MAX_PAIRS = 1_000_000  # of optional properties: each is compiled with each that may follow it, a million in 0.3 s

_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTED = ("prefixItems", "anyOf", "oneOf")
_SINGLE = ("items", "additionalProperties")
_SAYS_MORE = frozenset(
    {"additionalProperties", "patternProperties", "unevaluatedProperties", "minProperties", "$ref", "anyOf", "oneOf"}
)


def closed(schema: Schema) -> Schema:
    """Objects have the properties that are listed, unless the schema says that there may be others.

    JSON schemas mean the opposite, but hardly anyone who writes one: a model that may make up names does. Documents of
    the closed schema are documents of the open one. With `allOf`, the names of one part may be those of another.
    """
    return schema if _mentions(schema, "allOf") else _closed(schema)


def check_schema(schema: Schema) -> None:
    """Level by level, without recursion: what is too deep for that is what we look for."""
    level: list[object] = [schema]
    num_pairs = 0
    for _ in range(MAX_DEPTH):
        for value in level:
            _check_divisor(value)
            num_pairs += _num_optional(value) ** 2
        if num_pairs > MAX_PAIRS:
            raise GrammarError(
                f"objects have too many optional properties: at most {math.isqrt(MAX_PAIRS)} in one, fewer in more"
            )
        level = [inner for outer in level for inner in _inner(outer)]
    if level:
        raise GrammarError(f"the schema is nested more than {MAX_DEPTH} deep: use '$ref' and '$defs'")


def _check_divisor(schema: object) -> None:
    """The lexer counts remainders: it would count up to a million for seconds."""
    divisor = schema.get("multipleOf") if isinstance(schema, Mapping) else None
    if isinstance(divisor, int | float) and _without_point(divisor) > MAX_DIVISOR:
        raise GrammarError(f"the keyword 'multipleOf' must be at most {MAX_DIVISOR}, not counting its decimal point")


def _num_optional(schema: object) -> int:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(schema, Mapping) or not isinstance(properties, Mapping):
        return 0
    required = schema.get("required")
    return len(properties) - (len(properties.keys() & _texts(required)) if isinstance(required, list) else 0)


def _texts(values: list[object]) -> set[str]:
    return {value for value in values if isinstance(value, str)}


def _without_point(number: float) -> int:
    if isinstance(number, int) or number.is_integer():
        return abs(int(number))
    return int("".join(map(str, Decimal(repr(number)).as_tuple().digits)))


def _inner(value: object) -> Sequence[object]:
    if isinstance(value, Mapping):
        return [*value.values()]
    return value if isinstance(value, list) else ()


def _mentions(schema: Schema, keyword: str) -> bool:
    level: list[object] = [schema]
    while level:
        if any(isinstance(value, Mapping) and keyword in value for value in level):
            return True
        level = [inner for outer in level for inner in _inner(outer)]
    return False


def _closed(schema: Any) -> Any:  # noqa: ANN401
    if not isinstance(schema, Mapping):
        return schema
    whole = {key: _closed_inside(key, value) for key, value in schema.items()}
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and not schema.keys() & _SAYS_MORE and _lists_required(schema, properties):
        whole["additionalProperties"] = False
    return whole


def _lists_required(schema: Schema, properties: Schema) -> bool:
    required = schema.get("required")
    return not isinstance(required, list) or all(isinstance(name, str) and name in properties for name in required)


def _closed_inside(key: str, value: Any) -> Any:  # noqa: ANN401
    if key in _NAMED and isinstance(value, Mapping):
        return {name: _closed(inner) for name, inner in value.items()}
    if key in _LISTED and isinstance(value, list):
        return [_closed(inner) for inner in value]
    return _closed(value) if key in _SINGLE else value
