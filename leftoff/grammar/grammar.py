"""What may be written, as an expression in llguidance's dialect of Lark. Expressions can be put together.

A schema that is read here is known to be of a bearable size; whether it can be followed only the compiler knows.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec
from blake3 import blake3

from leftoff.grammar.errors import GrammarError
from leftoff.grammar.extent import checked_length, pattern_extent, schema_extent
from leftoff.grammar.schema import Schema, check_schema, closed

MAX_SOURCE_CHARACTERS = 512 << 10
MAX_CHOICES = 5000  # compared with each other
# Fixed text is cut into tokens as the model would, again for every token that is written: 1.3 ms for a thousand
# characters. A longer one is left to the model to cut.
_MAX_FORCED_CHARACTERS = 8192

_MOST_BYTES = 4  # of a character

# A space or a line break with its indentation: without a limit, a model that has lost its way writes spaces for ever.
_JSON_OPTIONS = {"whitespace_pattern": r" |\n( {0,20}|\t{0,8})"}


@dataclass(frozen=True)
class Grammar:
    """An expression, and the rules it refers to by their names.

    `num_fixed` is the length of the longest text that it may leave no choice about.
    """

    expression: str
    rules: tuple[str, ...] = ()
    num_fixed: int = 0
    is_row: bool = False  # may stand beside others without brackets: a level each, of which there may be few

    @property
    def lark(self) -> str:
        options = '{"no_forcing": true}' if self.num_fixed > _MAX_FORCED_CHARACTERS else "{}"
        return "\n".join([f"%llguidance {options}", f"start: {self.expression}", *dict.fromkeys(self.rules), ""])

    def __or__(self, other: "Grammar") -> "Grammar":
        return any_of([self, other])

    def __add__(self, other: "Grammar") -> "Grammar":
        rules, num_fixed = self.rules + other.rules, self.num_fixed + other.num_fixed
        return Grammar(f"{self._in_row} {other._in_row}", rules, num_fixed, is_row=True)

    def repeated(self, most: int) -> "Grammar":
        """Any number of times up to `most`, or not at all."""
        return Grammar(f"({self.expression}){{0,{most}}}", self.rules, self.num_fixed, is_row=True)

    def optional(self) -> "Grammar":
        return Grammar(f"({self.expression})?", self.rules, self.num_fixed, is_row=True)

    def named(self) -> "Grammar":
        """The same as a rule, to be referred to from several places."""
        name = f"part_{blake3(self.expression.encode()).hexdigest()[:16]}"
        return Grammar(name, (f"{name}: {self.expression}", *self.rules), self.num_fixed, is_row=True)

    @property
    def _in_row(self) -> str:
        return self.expression if self.is_row else f"({self.expression})"


def any_of(grammars: Sequence[Grammar]) -> Grammar:
    if len(grammars) == 1:
        return grammars[0]
    return Grammar(
        " | ".join(grammar._in_row for grammar in grammars),
        tuple(rule for grammar in grammars for rule in grammar.rules),
        max(grammar.num_fixed for grammar in grammars),
    )


NOTHING = Grammar('""')
ANY_OBJECT: Schema = {"type": "object"}
SPACES = Grammar(r"/[ \t\n]{0,8}/")


def from_schema(schema: Schema, *, lenient: bool = False) -> Grammar:
    """A document of this JSON schema. If `lenient`, keywords that are not supported are left out."""
    _check_size(schema)
    check_schema(schema)
    plain = {key: value for key, value in closed(schema).items() if key != "x-guidance"}
    options = {**_JSON_OPTIONS, "lenient": lenient}
    source = _checked(json.dumps({"x-guidance": options, **plain}, ensure_ascii=False))
    return Grammar(f"%json {source}", (), schema_extent(schema).num_fixed)


def from_regex(pattern: str) -> Grammar:
    """A text that the whole of the pattern matches."""
    if not pattern:
        raise GrammarError("the pattern is empty: give one that matches what you want")
    source = _checked(_escape_slashes(pattern))
    return Grammar(f"/{source}/", (), checked_length(pattern_extent(pattern)))


def from_choices(choices: Sequence[str]) -> Grammar:
    """One of these texts."""
    if not choices or not all(choices):
        raise GrammarError("there is nothing to choose from: give at least one text, and no empty ones")
    if len(choices) > MAX_CHOICES:
        raise GrammarError(f"there are {len(choices)} texts to choose from: must be at most {MAX_CHOICES}")
    source = _checked(" | ".join(json.dumps(choice, ensure_ascii=False) for choice in choices))
    return Grammar(source, (), max(map(len, choices)))


def _escape_slashes(pattern: str) -> str:
    """A slash ends a Lark pattern, and so does the end of a line, unless they are escaped."""
    parts, escaped = [], False
    for character in pattern:
        if character == "/" and not escaped:
            parts.append("\\")
        parts.append({"\n": "n" if escaped else "\\n", "\r": "r" if escaped else "\\r"}.get(character, character))
        escaped = character == "\\" and not escaped
    return "".join(parts)


def _check_size(schema: Schema) -> None:
    """Before anything goes through all of it. What cannot be encoded is refused later, by the reason."""
    with suppress(TypeError, ValueError, RecursionError):
        check_characters(len(msgspec.json.encode(schema)) // _MOST_BYTES)


def check_characters(num_characters: int) -> None:
    if num_characters > MAX_SOURCE_CHARACTERS:
        raise GrammarError(f"it has {num_characters} characters: must be at most {MAX_SOURCE_CHARACTERS}")


def _checked(source: str) -> str:
    check_characters(len(source))
    try:
        source.encode()
    except UnicodeEncodeError as error:
        raise GrammarError("it has half a character: surrogates come in pairs") from error
    return source
