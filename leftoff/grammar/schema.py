"""JSON schemas before they are compiled: their limits, their extent, and the properties that they do not list."""

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

from leftoff.grammar.errors import GrammarError
from leftoff.grammar.extent import MAX_LEVELS, Extent

Schema = Mapping[str, Any]

MAX_DEPTH = 64
MAX_DIVISOR = 10_000
MAX_JOINED_PATTERNS = 8  # the compiler takes twice the time and memory with each more that a text must match
MAX_PAIRS = 1_000_000  # of optional properties: each is compiled with each that may follow it, a million in 0.3 s
_MAX_OTHER_REFERENCES = 64

_SCHEMAS_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_SCHEMA_LISTS = ("prefixItems", "anyOf", "oneOf")
_SCHEMAS = ("items", "additionalProperties")
_JOINING = frozenset({"$ref", "anyOf", "oneOf"})
_JOINED = frozenset({*_SCHEMAS, "properties", "patternProperties", "prefixItems", "pattern"})
_MAY_ADD_PROPERTIES = frozenset(
    {"additionalProperties", "patternProperties", "unevaluatedProperties", "minProperties", "$ref", "anyOf", "oneOf"}
)


def check_schema(schema: Schema) -> None:
    """Raises `GrammarError` for what would take the compiler too long. Goes level by level, without recursion."""
    level: list[object] = [schema]
    num_pairs = 0
    for _ in range(MAX_DEPTH):
        for value in map(_object, level):
            _check_divisor(value)
            num_pairs += _num_optional(value) ** 2
        if num_pairs > MAX_PAIRS:
            raise GrammarError(
                f"objects have too many optional properties: at most {math.isqrt(MAX_PAIRS)} in one, fewer in more"
            )
        level = [inner for outer in level for inner in _inner(outer)]
    if level:
        raise GrammarError(f"the schema is nested more than {MAX_DEPTH} deep: use '$ref' and '$defs'")
    _check_patterns(schema)


def close_objects(schema: Schema) -> Schema:
    """Forbids properties that an object does not list, unless its schema mentions others.

    JSON schemas mean the opposite, but hardly any author does, and models make names up. Documents of the closed
    schema follow the open one too. Schemas with `allOf` stay open: one part may list what another leaves out.
    """
    has_all_of = any("allOf" in each for each in _objects(schema))
    return schema if has_all_of else _closed(schema)


def schema_extent(schema: Schema) -> Extent:
    """Levels of the JSON text, where each definition stands in the place of the first reference to it.

    The fixed text is at most that of all constants and choices, and of the names of properties with such values.
    """
    _check_references(schema)
    deepest = num_fixed = 0
    seen: set[str] = set()
    inline = {key: value for key, value in schema.items() if key not in ("$defs", "definitions")}
    waiting: list[tuple[object, int]] = [(inline, 0)]
    while waiting:  # depth first, as the compiler goes
        value, level = waiting.pop()
        deepest = max(deepest, level)
        if level > MAX_LEVELS:
            raise GrammarError(f"references lead to references more than {MAX_LEVELS} levels deep: use fewer")
        num_fixed += _fixed_texts(_object(value))
        reference = _reference(_object(value))
        target = []
        if reference is not None and reference not in seen and reference.startswith("#/"):
            seen.add(reference)
            target = [_lookup(schema, reference)]
        waiting += [(inner, level + 1) for inner in (*target, *_inner(value))][::-1]
    return Extent(num_fixed, num_levels=deepest)


def _inner(value: object) -> Sequence[object]:
    if isinstance(value, Mapping):
        return [*value.values()]
    return value if isinstance(value, list) else ()


def _objects(schema: Schema) -> list[Schema]:
    """All objects of the JSON text, the schema itself among them."""
    values: list[object] = [schema]
    for value in values:  # which grows while it is gone through
        values += _inner(value)
    return [value for value in values if isinstance(value, Mapping)]


def _object(value: object) -> Schema:
    """The value if it is an object; else an empty one, in which nothing is found."""
    return value if isinstance(value, Mapping) else {}


def _check_patterns(schema: Schema) -> None:
    objects = _objects(schema)
    num_patterns = len({pattern for each in objects for pattern in _patterns(each)})
    if num_patterns > MAX_JOINED_PATTERNS and any(map(_joins, objects)):
        raise GrammarError(
            f"there are {num_patterns} patterns, and 'allOf', or what stands beside '$ref', 'anyOf' or 'oneOf', may ask"
            f" for several of them in one text: use at most {MAX_JOINED_PATTERNS}, or do not join schemas"
        )


def _patterns(schema: Schema) -> list[str]:
    pattern = schema.get("pattern")
    return [*([pattern] if isinstance(pattern, str) else []), *_object(schema.get("patternProperties"))]


def _joins(schema: Schema) -> bool:
    """Whether a value may have to follow several schemas at once."""
    joining = schema.keys() & _JOINING
    return "allOf" in schema or len(joining) > 1 or bool(joining and schema.keys() & _JOINED)


def _check_divisor(schema: Schema) -> None:
    """The lexer has a state for each remainder: a divisor of a million would take it seconds."""
    divisor = schema.get("multipleOf")
    if isinstance(divisor, int | float) and _without_point(divisor) > MAX_DIVISOR:
        raise GrammarError(f"the keyword 'multipleOf' must be at most {MAX_DIVISOR}, not counting its decimal point")


def _without_point(number: float) -> int:
    if isinstance(number, int) or number.is_integer():
        return abs(int(number))
    return int("".join(map(str, Decimal(repr(number)).as_tuple().digits)))


def _num_optional(schema: Schema) -> int:
    required = schema.get("required")
    names = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    return len(_object(schema.get("properties")).keys() - names)


def _closed(schema: Any) -> Any:  # noqa: ANN401
    if not isinstance(schema, Mapping):
        return schema
    whole = {key: _closed_inside(key, value) for key, value in schema.items()}
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, Mapping) or schema.keys() & _MAY_ADD_PROPERTIES:
        return whole
    names = required if isinstance(required, list) else []
    if all(isinstance(name, str) and name in properties for name in names):
        whole["additionalProperties"] = False
    return whole


def _closed_inside(key: str, value: Any) -> Any:  # noqa: ANN401
    if key in _SCHEMAS_BY_NAME and isinstance(value, Mapping):
        return {name: _closed(inner) for name, inner in value.items()}
    if key in _SCHEMA_LISTS and isinstance(value, list):
        return [_closed(inner) for inner in value]
    return _closed(value) if key in _SCHEMAS else value


def _check_references(schema: Schema) -> None:
    """References that are no paths are not followed here, so there may only be few."""
    references = filter(None, map(_reference, _objects(schema)))
    others = {reference for reference in references if not re.match("#(/|$)", reference)}
    if len(others) > _MAX_OTHER_REFERENCES:
        raise GrammarError(f"more than {_MAX_OTHER_REFERENCES} references are no paths: write them as '#/$defs/name'")


def _reference(schema: Schema) -> str | None:
    reference = schema.get("$ref")
    return unquote(reference) if isinstance(reference, str) else None


def _lookup(schema: Schema, reference: str) -> object:
    found: object = schema
    for key in reference.removeprefix("#/").split("/"):
        found = _object(found).get(key.replace("~1", "/").replace("~0", "~"))
    return found


def _fixed_texts(schema: Schema) -> int:
    least, in_items = schema.get("minItems"), _fixed_value(_object(schema.get("items")))
    times = least if isinstance(least, int) else 0
    properties = _object(schema.get("properties"))
    names = sum(len(name) for name, inner in properties.items() if _fixed_value(_object(inner)))
    return _fixed_value(schema) + times * in_items + names


def _fixed_value(schema: Schema) -> int:
    """The longest text of a constant or a choice."""
    choices = schema["enum"] if isinstance(schema.get("enum"), list) else [schema.get("const")]
    return max((len(choice) for choice in choices if isinstance(choice, str)), default=0)
