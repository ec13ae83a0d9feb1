"""Makes up JSON schemas that use all that is supported, each of a kind that a document can be finished.

A model with random weights ends nothing by itself: texts and lists have limits, so that it need not.
"""

import random
from typing import Any

Schema = dict[str, Any]

_WORDS = ("river", "hill", "boat", "lamp", "snow", "tree", "Straße", 'q"q', "a b", "né\n")
_PATTERNS = ("^[a-f]{1,4}$", "^(ab|cd){1,3}$", "^[A-Z][a-z]{0,5}$", r"^\d{2,4}-\d{2}$")
_FORMATS = ("date", "ipv4", "uuid")


class Schemas:
    """The same seed makes the same schemas."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def schema(self) -> Schema:
        schema = self._any(3)
        if self._random.random() < 0.2:
            schema = {
                "$defs": {"inner": self._any(1)},
                "type": "array",
                "maxItems": 2,
                "items": {"$ref": "#/$defs/inner"},
            }
        elif self._random.random() < 0.1:
            link = {"anyOf": [{"type": "null"}, {"$ref": "#"}]}
            schema = self._object_of({"value": self._scalar(), "next": link}, ["value", "next"])
        return schema

    def _any(self, depth: int) -> Schema:
        if depth == 0 or self._random.random() < 0.3:
            return self._scalar()
        makers = (self._object, self._object, self._map, self._array, self._tuple, self._choice, self._both)
        return self._random.choice(makers)(depth)

    def _scalar(self) -> Schema:
        makers = (self._text, self._text, self._integer, self._number, self._enum)
        plain: list[Schema] = [{"type": "boolean"}, {"type": "null"}, {"const": self._random.choice(_WORDS)}]
        return self._random.choice(makers)() if self._random.random() < 0.8 else self._random.choice(plain)

    def _text(self) -> Schema:
        kind = self._random.randrange(4)
        if kind == 0:
            return {"type": "string", "pattern": self._random.choice(_PATTERNS)}
        if kind == 1:
            return {"type": "string", "format": self._random.choice(_FORMATS)}
        least = self._random.randrange(4)
        return {"type": "string", "minLength": least, "maxLength": least + self._random.randrange(8)}

    def _integer(self) -> Schema:
        low = self._random.randrange(-1000, 1000)
        high = low + self._random.randrange(1, 10 ** self._random.randrange(1, 7))
        bounds: Schema = {"minimum": low, "maximum": high}
        if self._random.random() < 0.3:
            bounds = {"exclusiveMinimum": low - 1, "exclusiveMaximum": high + 1}
        return {"type": "integer", **bounds}

    def _number(self) -> Schema:
        if self._random.random() < 0.3:
            return {"type": "number", "multipleOf": self._random.choice((5, 0.25, 0.1)), "minimum": 0, "maximum": 50}
        low = round(self._random.uniform(-100, 100), 2)
        return {"type": "number", "minimum": low, "maximum": low + self._random.choice((0.5, 3, 1000))}

    def _enum(self) -> Schema:
        values: list[Any] = [*_WORDS, 1, 2.5, True, None, [1, "x"], {"a": 1}]
        return {"enum": self._random.sample(values, self._random.randrange(1, 5))}

    def _object(self, depth: int) -> Schema:
        names = self._random.sample(_WORDS, self._random.randrange(5))
        properties = {name: self._any(depth - 1) for name in names}
        return self._object_of(properties, [name for name in names if self._random.random() < 0.6])

    def _object_of(self, properties: Schema, required: list[str]) -> Schema:
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def _map(self, depth: int) -> Schema:
        """Names of one's own choice; the first of them always there."""
        return {
            "type": "object",
            "patternProperties": {"^[a-z]{1,3}$": self._any(depth - 1)},
            "additionalProperties": False,
            "minProperties": 1,
            "maxProperties": 1,
        }

    def _array(self, depth: int) -> Schema:
        least = self._random.randrange(3)
        return {
            "type": "array",
            "items": self._any(depth - 1),
            "minItems": least,
            "maxItems": least + self._random.randrange(3),
        }

    def _tuple(self, depth: int) -> Schema:
        parts = [self._any(depth - 1) for _ in range(self._random.randrange(1, 4))]
        return {"type": "array", "prefixItems": parts, "items": False, "minItems": len(parts)}

    def _choice(self, depth: int) -> Schema:
        if self._random.random() < 0.3:
            return {"oneOf": [{"type": "boolean"}, {"type": "integer", "minimum": 0, "maximum": 9}]}
        return {"anyOf": [self._any(depth - 1) for _ in range(self._random.randrange(1, 4))]}

    def _both(self, depth: int) -> Schema:
        """Two schemas at once, the second of which closes the list of names."""
        names = {"hill": self._any(depth - 1), "boat": self._scalar()}
        first = {"type": "object", "properties": {"hill": names["hill"]}, "required": ["hill"]}
        second = self._object_of({"hill": True, "boat": names["boat"]}, ["boat"])
        return {"allOf": [first, second]}
