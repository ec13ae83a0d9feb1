"""Grammars as expressions in llguidance's dialect of Lark, which can be combined.

Checks that the size of what a client sends is bearable. Whether llguidance supports it shows when it is compiled.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec
from blake3 import blake3

from leftoff.engine.vocabulary import Vocabulary
from leftoff.grammar.errors import GrammarError
from leftoff.grammar.extent import checked_length, pattern_extent
from leftoff.grammar.schema import Schema, check_schema, close_objects, schema_extent

MAX_SOURCE_CHARACTERS = 512 << 10
MAX_CHOICES = 5000  # compared with each other
# llguidance tokenises fixed text again for every token of it: 1.3 ms for a thousand characters. It does not for a
# longer one: the model writes that token by token, as any other text.
_MAX_FORCED_CHARACTERS = 8192
_MAX_CHARACTER_BYTES = 4

# A space, or a line break with its indentation: without a limit, a model that is lost writes spaces for ever.
_JSON_OPTIONS = {"whitespace_pattern": r" |\n( {0,20}|\t{0,8})"}
_ANY_TEXT = r"/(.|\n)*/"


@dataclass(frozen=True)
class Grammar:
    """An expression, and the rules that it refers to by name."""

    expression: str
    rules: tuple[str, ...] = ()
    num_fixed: int = 0  # characters of the longest text that it may leave no choice about
    is_sequence: bool = False  # needs no brackets in a sequence: each bracket is a level, of which there are few

    @property
    def lark(self) -> str:
        options = '{"no_forcing": true}' if self.num_fixed > _MAX_FORCED_CHARACTERS else "{}"
        return "\n".join([f"%llguidance {options}", f"start: {self.expression}", *dict.fromkeys(self.rules), ""])

    def __or__(self, other: "Grammar") -> "Grammar":
        return any_of([self, other])

    def __add__(self, other: "Grammar") -> "Grammar":
        rules, num_fixed = self.rules + other.rules, self.num_fixed + other.num_fixed
        return Grammar(f"{self._in_sequence} {other._in_sequence}", rules, num_fixed, is_sequence=True)

    def repeated(self, most: int) -> "Grammar":
        """Zero to `most` times."""
        return Grammar(f"({self.expression}){{0,{most}}}", self.rules, self.num_fixed, is_sequence=True)

    def optional(self) -> "Grammar":
        return Grammar(f"({self.expression})?", self.rules, self.num_fixed, is_sequence=True)

    def named(self) -> "Grammar":
        """The same as a rule, so that several places can refer to it."""
        name = f"part_{blake3(self.expression.encode()).hexdigest()[:16]}"
        return Grammar(name, (f"{name}: {self.expression}", *self.rules), self.num_fixed, is_sequence=True)

    @property
    def _in_sequence(self) -> str:
        return self.expression if self.is_sequence else f"({self.expression})"


NOTHING = Grammar('""')
ANY_OBJECT: Schema = {"type": "object"}
SPACES = Grammar(r"/[ \t\n]{0,8}/")


def any_of(grammars: Sequence[Grammar]) -> Grammar:
    """A grammar that accepts what any of the given ones accepts."""
    if len(grammars) == 1:
        return grammars[0]
    return Grammar(
        " | ".join(grammar._in_sequence for grammar in grammars),
        tuple(rule for grammar in grammars for rule in grammar.rules),
        max(grammar.num_fixed for grammar in grammars),
    )


def from_schema(schema: Schema, *, lenient: bool = False) -> Grammar:
    """A document that follows a JSON schema. With `lenient`, keywords that llguidance does not support are ignored."""
    # Before anything walks through it. What cannot be encoded is refused below, with its reason.
    with suppress(TypeError, ValueError, RecursionError):
        check_characters(len(msgspec.json.encode(schema)) // _MAX_CHARACTER_BYTES)
    check_schema(schema)
    plain = {key: value for key, value in close_objects(schema).items() if key != "x-guidance"}
    options = {**_JSON_OPTIONS, "lenient": lenient}
    source = _checked(json.dumps({"x-guidance": options, **plain}, ensure_ascii=False))
    return Grammar(f"%json {source}", (), schema_extent(schema).num_fixed)


def from_regex(pattern: str) -> Grammar:
    """A text that the whole pattern matches."""
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


def literal(text: str, vocabulary: Vocabulary) -> Grammar:
    """Exactly this text. Names of control tokens in it stand for those tokens, as in a chat template."""
    return Grammar(" ".join(_literal_parts(text, vocabulary)) or '""', (), len(text), is_sequence=True)


def text_until(end: str, vocabulary: Vocabulary) -> Grammar:
    """Any text up to and including the first `end`."""
    first, *rest = _literal_parts(end, vocabulary)
    if first.startswith("<["):  # a control token, which text cannot contain
        return Grammar(" ".join([_ANY_TEXT, first, *rest]))
    name = f"until_{blake3(first.encode()).hexdigest()[:12]}"
    return Grammar(" ".join([name, *rest]), (f"{name}[lazy]: {_ANY_TEXT} {first}",))


def check_characters(num_characters: int, most: int = MAX_SOURCE_CHARACTERS) -> None:
    """Raises `GrammarError` for a source that is too long to be parsed."""
    if num_characters > most:
        raise GrammarError(f"it has {num_characters} characters: must be at most {most}")


def _checked(source: str) -> str:
    check_characters(len(source))
    try:
        source.encode()
    except UnicodeEncodeError as error:
        raise GrammarError("it has half a character: surrogates come in pairs") from error
    return source


def _escape_slashes(pattern: str) -> str:
    """An unescaped slash or line break would end a pattern in Lark."""
    parts, escaped = [], False
    for character in pattern:
        if character == "/" and not escaped:
            parts.append("\\")
        parts.append({"\n": "n" if escaped else "\\n", "\r": "r" if escaped else "\\r"}.get(character, character))
        escaped = character == "\\" and not escaped
    return "".join(parts)


def _literal_parts(text: str, vocabulary: Vocabulary) -> Iterator[str]:
    for part, token in vocabulary.control_parts(text):
        yield f"<[{token}]>" if token is not None else json.dumps(part, ensure_ascii=False)
