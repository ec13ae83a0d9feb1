"""What may be written, as an expression in llguidance's dialect of Lark. Expressions can be put together.

A schema that is read here is known to be of a bearable size; whether it can be followed only the compiler knows.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from leftoff.grammar.errors import GrammarError
from leftoff.grammar.schema import Schema, check_schema, closed

MAX_SOURCE_CHARACTERS = 512 << 10

# A space or a line break with its indentation: without a limit, a model that has lost its way writes spaces for ever.
_JSON_OPTIONS = {"whitespace_pattern": r" |\n( {0,20}|\t{0,8})"}


@dataclass(frozen=True)
class Grammar:
    """An expression, and the rules it refers to by their names."""

    expression: str
    rules: tuple[str, ...] = ()

    @property
    def lark(self) -> str:
        return "\n".join(["%llguidance {}", f"start: {self.expression}", *dict.fromkeys(self.rules), ""])

    def __or__(self, other: "Grammar") -> "Grammar":
        return Grammar(f"({self.expression}) | ({other.expression})", self.rules + other.rules)

    def __add__(self, other: "Grammar") -> "Grammar":
        return Grammar(f"({self.expression}) ({other.expression})", self.rules + other.rules)

    def repeated(self, most: int) -> "Grammar":
        """Any number of times up to `most`, or not at all."""
        return Grammar(f"({self.expression}){{0,{most}}}", self.rules)

    def optional(self) -> "Grammar":
        return Grammar(f"({self.expression})?", self.rules)


NOTHING = Grammar('""')
ANY_OBJECT: Schema = {"type": "object"}
SPACES = Grammar(r"/[ \t\n]{0,8}/")


def from_schema(schema: Schema, *, lenient: bool = False) -> Grammar:
    """A document of this JSON schema. If `lenient`, keywords that are not supported are left out."""
    check_schema(schema)
    plain = {key: value for key, value in closed(schema).items() if key != "x-guidance"}
    options = {**_JSON_OPTIONS, "lenient": lenient}
    return Grammar(f"%json {_checked(json.dumps({'x-guidance': options, **plain}, ensure_ascii=False))}")


def from_regex(pattern: str) -> Grammar:
    """A text that the whole of the pattern matches."""
    if not pattern:
        raise GrammarError("the pattern is empty: give one that matches what you want")
    return Grammar(f"/{_checked(_escape_slashes(pattern))}/")


def from_choices(choices: Sequence[str]) -> Grammar:
    """One of these texts."""
    if not choices or not all(choices):
        raise GrammarError("there is nothing to choose from: give at least one text, and no empty ones")
    return Grammar(_checked(" | ".join(json.dumps(choice, ensure_ascii=False) for choice in choices)))


def _escape_slashes(pattern: str) -> str:
    """A slash ends a Lark pattern, and so does the end of a line, unless they are escaped."""
    parts, escaped = [], False
    for character in pattern:
        if character == "/" and not escaped:
            parts.append("\\")
        parts.append({"\n": "n" if escaped else "\\n", "\r": "r" if escaped else "\\r"}.get(character, character))
        escaped = character == "\\" and not escaped
    return "".join(parts)


def _checked(source: str) -> str:
    if len(source) > MAX_SOURCE_CHARACTERS:
        raise GrammarError(f"it has {len(source)} characters: must be at most {MAX_SOURCE_CHARACTERS}")
    try:
        source.encode()
    except UnicodeEncodeError as error:
        raise GrammarError("it has half a character: surrogates come in pairs") from error
    return source
