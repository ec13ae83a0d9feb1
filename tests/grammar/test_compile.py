"""Schemas and patterns are compiled once, within limits, and refused in plain words."""

import re
from contextlib import closing
from functools import reduce
from typing import Any

import pytest

from leftoff.grammar.compile import Grammars
from leftoff.grammar.errors import GrammarError
from leftoff.grammar.grammar import Grammar, from_choices, from_regex, from_schema
from tests.grammar.walk import accepts, allowed
from tests.patience import PATIENCE_S


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"not": {"type": "string"}}, "the keyword 'not' is not supported"),
        ({"type": "array", "items": {"uniqueItems": True}}, "the keyword 'uniqueItems' is not supported"),
        ({"if": {}, "then": {}}, "the keyword 'if', 'then' is not supported"),
        ({"type": "string", "format": "poem"}, "the 'format' 'poem' is not supported"),
        ({"oneOf": [{"type": "string"}, {"maxLength": 3}]}, "the keyword 'oneOf' is supported only"),
        ({"properties": {"a": {}}, "minProperties": 3}, "'minProperties'"),
        ({"type": "string", "pattern": "(?=a)b"}, "the pattern '(?=a)b' cannot be read: look-around"),
        ({"type": "strin"}, "Invalid type: strin"),
        ({"$ref": "#/$defs/lost"}, "Pointer '/$defs/lost' does not exist"),
        ({"$ref": "https://example.com/schema"}, "'https://example.com/schema'"),
        ({"type": "integer", "minimum": 5, "maximum": 3}, "minimum (5) is greater than maximum (3)"),
        ({"type": "integer", "multipleOf": 1_000_003}, "the keyword 'multipleOf' must be at most 10000"),
        ({"enum": ["x" * 1000] * 600}, "characters: must be at most"),
        ({"const": "\ud800"}, "half a character"),
    ],
)
def test_a_schema_that_cannot_be_followed_is_refused_by_its_keyword(
    grammars: Grammars, schema: dict[str, Any], reason: str
) -> None:
    with pytest.raises(GrammarError, match=re.escape(reason)):
        grammars.compile(from_schema(schema))


def test_a_schema_that_is_nested_too_deep_is_refused(grammars: Grammars) -> None:
    schema: dict[str, Any] = {}
    for _ in range(20):
        schema = {"properties": {"a": schema}}
    grammars.compile(from_schema(schema))
    for _ in range(20_000):
        schema = {"properties": {"a": schema}}
    with pytest.raises(GrammarError, match="nested more than 64 deep"):
        from_schema(schema)


def test_a_schema_that_explodes_is_refused_soon(grammars: Grammars) -> None:
    names = [[f"{row}-{column}" for column in range(4)] for row in range(12)]
    branches: list[dict[str, Any]] = [{"anyOf": [{"properties": {name: {}}} for name in row]} for row in names]
    with pytest.raises(GrammarError, match="too complex"):
        grammars.compile(from_schema({"allOf": branches}))


_ENDS = [f".*a{number}" for number in range(9)]
_TEXT: dict[str, Any] = {"type": "string"}


def _beside(key: str, pattern: str, inner: dict[str, Any]) -> dict[str, Any]:
    """A pattern beside a keyword that leads to another schema."""
    is_reference = key == "$ref"
    return {"pattern": pattern} | ({key: "#/$defs/a", "$defs": {"a": inner}} if is_reference else {key: [inner]})


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"pattern": pattern} for pattern in _ENDS]},
        reduce(lambda inner, pattern: _beside("anyOf", pattern, inner), _ENDS, _TEXT),
        reduce(lambda inner, pattern: _beside("$ref", pattern, inner), _ENDS, _TEXT),
        {"allOf": [{"patternProperties": {pattern: {}}} for pattern in _ENDS]},
    ],
)
def test_patterns_that_one_text_must_match_are_few(schema: dict[str, Any]) -> None:
    """Each doubles what the compiler takes: 24 of them all memory there is."""
    with pytest.raises(GrammarError, match="there are 9 patterns"):
        from_schema(schema)


def test_patterns_for_different_texts_may_be_many(grammars: Grammars) -> None:
    either = {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/code"}], "title": "Code", "default": None}
    texts = {f"text {number}": {"type": "string", "pattern": f"^a{number}"} for number in range(20)}
    grammars.compile(from_schema({"properties": texts | {"either": either}, "$defs": {"code": {"pattern": "^b"}}}))


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"\d{3}-\d{4}", ["555-1234"], ["555-123", "x555-1234"]),
        ("^(yes|no)$", ["yes", "no"], ["maybe"]),
        ("a/b|c\nd", ["a/b", "c\nd"], ["a", "c"]),
        (r"a\/b", ["a/b"], ["a\\/b"]),
        ("[^/]+", ["é x"], ["a/b"]),
    ],
)
def test_a_pattern_matches_the_whole_reply(grammars: Grammars, pattern: str, good: list[str], bad: list[str]) -> None:
    grammar = from_regex(pattern)
    assert [text for text in good if not accepts(grammars, grammar, text)] == []
    assert [text for text in bad if accepts(grammars, grammar, text)] == []


@pytest.mark.parametrize("pattern", ["(a", "a{2,1}", "*", "(?<=a)b", ""])
def test_a_pattern_that_cannot_be_read_is_refused(grammars: Grammars, pattern: str) -> None:
    with pytest.raises(GrammarError, match="pattern"):
        grammars.compile(from_regex(pattern))


def test_one_of_some_texts(grammars: Grammars) -> None:
    grammar = from_choices(["red", "dark red", 'a "b"\n'])
    assert all(accepts(grammars, grammar, text) for text in ("red", "dark red", 'a "b"\n'))
    assert not accepts(grammars, grammar, "dark")
    with pytest.raises(GrammarError):
        from_choices([])


def test_white_space_has_an_end(grammars: Grammars) -> None:
    grammar = from_schema({"type": "object"})
    assert accepts(grammars, grammar, '{\n    "a": 1\n}')
    assert not accepts(grammars, grammar, '{  "a": 1}')
    assert not accepts(grammars, grammar, "{" + "\n" * 3 + "}")


def test_a_schema_is_compiled_once_and_each_reply_goes_its_own_way(grammars: Grammars) -> None:
    grammar = from_choices(["ab", "cd"])
    one, other = (grammars.match(grammars.compile(grammar)) for _ in range(2))
    num_kept = grammars.num_kept
    vocabulary = grammars.vocabulary
    one.accept(int(vocabulary.tokenize("a")[0]))
    assert allowed(one, vocabulary) != allowed(other, vocabulary)
    assert grammars.num_kept == num_kept


def test_what_is_kept_has_a_limit(grammars: Grammars) -> None:
    choices = [from_choices([f"choice {number}"]) for number in range(6)]
    with (
        closing(Grammars(grammars.vocabulary, max_kept=3)) as few,
        closing(Grammars(grammars.vocabulary, max_characters=len(choices[0].lark))) as short,
    ):
        for number, choice in enumerate(choices, 1):
            few.compile(choice)
            short.compile(choice)
            assert (few.num_kept, short.num_kept) == (min(number, 3), 1)


def test_what_is_held_can_be_followed_whatever_is_kept(grammars: Grammars) -> None:
    with closing(Grammars(grammars.vocabulary, max_kept=1)) as few:
        held = few.compile(from_choices(["held"]))
        few.compile(from_choices(["another"]))
        assert allowed(few.match(held), few.vocabulary)


def test_a_grammar_that_is_too_long_is_refused(grammars: Grammars) -> None:
    with pytest.raises(GrammarError, match="characters: must be at most"):
        grammars.compile(Grammar(" | ".join(f'"{number}"' for number in range(300_000))))


def test_the_next_mask_is_worked_out_on_another_thread(grammars: Grammars) -> None:
    matcher = grammars.match(grammars.compile(from_regex("[a-z]{9}")), hand_over_seconds=-1.0)
    for token in grammars.vocabulary.tokenize("abc").tolist():
        assert matcher._computing is not None
        matcher._computing.result(PATIENCE_S)  # though nobody has asked for it
        matcher.accept(token)
    letters = {grammars.vocabulary.piece(token) for token in allowed(matcher, grammars.vocabulary)}
    assert b"a" in letters
    assert b"1" not in letters


def test_a_mask_is_there_even_if_no_thread_is_free(grammars: Grammars) -> None:
    busy = Grammars(grammars.vocabulary)
    busy.close()
    matcher = busy.match(busy.compile(from_choices(["ab"])))
    assert len(allowed(matcher, grammars.vocabulary)) == 1


def test_work_begins_when_the_tokenizer_is_there(grammars: Grammars) -> None:
    fresh = Grammars(grammars.vocabulary)
    with fresh._making_tokenizer:  # as if another thread were at it
        submitted = fresh.submit(lambda: fresh._made_tokenizer)
        with pytest.raises(TimeoutError):
            submitted.started.result(0.05)
    submitted.started.result(30)
    assert submitted.result.result(30) is not None
    fresh.close()
