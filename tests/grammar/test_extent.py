"""What would overflow a stack, or make every token dear, is found before it is compiled."""

import random
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leftoff.engine.vocabulary import Vocabulary
from leftoff.grammar.compile import Grammars
from leftoff.grammar.errors import GrammarError
from leftoff.grammar.extent import MAX_FIXED_CHARACTERS, pattern_extent
from leftoff.grammar.gbnf import from_gbnf, read_gbnf
from leftoff.grammar.grammar import Grammar, from_choices, from_regex, from_schema
from leftoff.grammar.lexemes import Choice, Name, Rules, Text, names_in, regular_rules
from leftoff.grammar.schema import schema_extent
from leftoff.types import Tokens
from tests.grammar.walk import accepts, allowed


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("abc", 3),
        ("a|bcd|e", 3),
        ("a{3}", 3),
        ("a{3,}b{2,5}", 5),
        ("(ab{2}){10}", 30),
        ("(?:a|bb)+c", 3),
        ("(?P<name>ab)(?<other>c)(?i)d(?i:e)", 5),
        (r"abc\d{300}-\d{400}x", 3),
        (r"\x{1F600}\x41\u0041\.\/", 5),
        (r"\pL{9}\p{Greek}{9}.{9}a", 1),
        ("[a-z]{5}[]a]{7}[^]b]{8}[[:alpha:]x]{9}", 1),
        (r"[a]{3}[\]]{4}", 7),
        ("^a$\\b", 1),
        ("a{2}?b", 3),
        ("a{x}", 4),
        ("(a{1000}|b){1000}", 10**6),
        ("((a{1000}){1000}){1000}", 10**9),
        ("[\\s\\S]{500000}", 1),
        ("(a", 1),
        ("a)b", 3),
        ("{5}", 0),
        ("", 0),
    ],
)
def test_the_longest_text_that_a_pattern_fixes(pattern: str, wanted: int) -> None:
    assert pattern_extent(pattern).num_fixed == wanted


@settings(max_examples=300)
@given(st.lists(st.sampled_from(["a", "b", "(", ")", "+", "{2}", "{3}"]), max_size=20).map("".join))
def test_a_pattern_without_choices_fixes_its_shortest_match(pattern: str) -> None:
    try:
        least, _ = re._parser.parse(pattern).getwidth()
    except re.error:
        return
    assert pattern_extent(pattern).num_fixed == least


DEEP_CHAINS = {
    "words": lambda n: "\n".join(["root ::= r0", *(f'r{i} ::= r{i + 1} | "a{i}"' for i in range(n)), f'r{n} ::= "x"']),
    "recursive": lambda n: "\n".join(
        ["root ::= r0", *(f'r{i} ::= r{i + 1} r0? | "a{i}"' for i in range(n)), f'r{n} ::= "x"']
    ),
}


@pytest.mark.parametrize("chain", DEEP_CHAINS)
def test_rules_that_refer_too_deep_are_refused(grammars: Grammars, chain: str) -> None:
    grammars.compile(from_gbnf(DEEP_CHAINS[chain](100)))
    with pytest.raises(GrammarError, match="rules refer to each other more than 1000 deep"):
        from_gbnf(DEEP_CHAINS[chain](2000))


DEEP_SCHEMAS: dict[str, Any] = {
    "references": lambda to: {"$ref": to},
    "objects": lambda to: {"type": "object", "properties": {"a": {"$ref": to}}},
    "alternatives": lambda to: {"anyOf": [{"$ref": to}, {"type": "null"}]},
    "lists": lambda to: {"items": {"items": {"$ref": to}}},
    "escaped": lambda to: {"$ref": to.replace("$", "%24")},
}


def chained(kind: str, size: int) -> dict[str, Any]:
    definitions = {f"d{i}": DEEP_SCHEMAS[kind](f"#/$defs/d{i + 1}") for i in range(size)}
    return {"$ref": "#/$defs/d0", "$defs": definitions | {f"d{size}": {"type": "integer"}}}


@pytest.mark.parametrize("kind", DEEP_SCHEMAS)
def test_references_that_lead_too_deep_are_refused(grammars: Grammars, kind: str) -> None:
    if kind != "escaped":
        grammars.compile(from_schema(chained(kind, 100)))
    with pytest.raises(GrammarError, match="more than 1000 levels deep"):
        from_schema(chained(kind, 4000))


def test_references_by_other_names_are_few(grammars: Grammars) -> None:
    definitions = {f"d{i}": {"$anchor": f"a{i}", "$ref": f"#a{i + 1}"} for i in range(4000)}
    with pytest.raises(GrammarError, match="more than 64 references are no paths"):
        from_schema({"$ref": "#a0", "$defs": definitions})
    tree = {"type": "object", "properties": {"value": {"type": "integer"}, "next": {"$ref": "#"}}}
    assert accepts(grammars, from_schema(tree), '{"value":1,"next":{"value":2,"next":{}}}')


def test_definitions_that_all_refer_to_each_other_are_gone_through_once() -> None:
    names = [f"d{i}" for i in range(40)]
    everybody = {name: {"anyOf": [{"$ref": f"#/$defs/{other}"} for other in names]} for name in names}
    assert 80 < schema_extent({"$ref": "#/$defs/d0", "$defs": everybody}).num_levels < 200


def branching(num_rules: int) -> str:
    lines = [f"r{i} ::= r{i + 1}? r{i + 1}?" for i in range(num_rules)]
    return "\n".join(["root ::= r0 root?", *lines, f'r{num_rules} ::= "x"'])


def test_rules_that_branch_at_every_step_are_gone_through_once() -> None:
    from_gbnf(branching(16))
    with pytest.raises(GrammarError, match="a text of 1,099,511,627,776 characters"):
        from_gbnf(branching(40))


def test_rules_that_refer_to_each_other_in_too_many_ways_are_refused() -> None:
    rules = [f"r{i} ::= r{(i + 1) % 300}? r{(7 * i) % 300}? [{chr(0x4E00 + 2 * i)}a]" for i in range(300)]
    with pytest.raises(GrammarError, match="too many ways"):
        from_gbnf("\n".join(["root ::= r0", *rules]))
    for between in (" ", "|"):
        parts = between.join(f"[{chr(0x4E00 + 2 * i)}]?" for i in range(2000))
        with pytest.raises(GrammarError, match="too many ways"):
            from_gbnf(f'root ::= "(" root ")" | x\nx ::= {parts}')


def test_a_grammar_with_much_text_between_free_values_is_followed(grammars: Grammars) -> None:
    properties = [f'"\\"a property of some length {i}\\": " inner{i % 20}' for i in range(300)]
    inner = [f'inner{i} ::= "{{" {"text " * 20} "}}"' for i in range(20)]
    text = 'text ::= "\\"a name that takes some space\\": \\"" [a-z]* "\\""'
    rules = "\n".join([f"root ::= {' '.join(properties)}", *inner, text])
    grammars.compile(from_gbnf(rules))


@given(st.integers(0, 2**32))
def test_regular_rules_are_those_that_reach_no_circle(seed: int) -> None:
    rng = random.Random(seed)
    names = [f"r{i}" for i in range(8)]
    rules: Rules = {
        name: Choice((Text("x"), *(Name(rng.choice(names)) for _ in range(rng.randrange(3))))) for name in names
    }

    def reachable(name: str) -> set[str]:
        found: set[str] = set()
        while new := {used for one in (found or {name}) for used in names_in(rules[one])} - found:
            found |= new
        return found

    circles = {name for name in names if name in reachable(name)}
    assert regular_rules(rules) == {name for name in names if not ({name} | reachable(name)) & circles}


@pytest.mark.parametrize(
    "grammar",
    [
        from_regex("a{20000}b"),
        from_gbnf('root ::= "ab"{10000} "c"'),
        from_choices(["ab" * 10_000]),
        from_schema({"const": "ab" * 10_000}),
        from_schema({"type": "array", "items": {"const": "ab"}, "minItems": 10_000}),
    ],
    ids=["regex", "gbnf", "choice", "const", "array"],
)
def test_a_long_fixed_text_is_not_cut_into_tokens_again_and_again(
    grammars: Grammars,
    grammar: Grammar,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Work is compared, not time: how much text the tokenizer is asked for while three tokens are written."""
    matcher = grammars.match(grammars.compile(grammar))
    asked: list[int] = []
    tokenize = Vocabulary.tokenize

    def counted(vocabulary: Vocabulary, text: str, *, parse_special: bool = True) -> Tokens:
        asked.append(len(text))
        return tokenize(vocabulary, text, parse_special=parse_special)

    monkeypatch.setattr(Vocabulary, "tokenize", counted)
    for _ in range(3):
        matcher.accept(min(allowed(matcher, grammars.vocabulary), key=lambda t: len(grammars.vocabulary.piece(t))))
    assert sum(asked) < 1000
    logits = np.zeros(grammars.vocabulary.size, np.float32)
    assert matcher.mask(logits)


def test_what_is_short_is_cut_as_the_model_would() -> None:
    grammar = from_schema({"type": "object", "properties": {"river": {"type": "string"}}, "required": ["river"]})
    assert "no_forcing" not in grammar.lark
    assert "no_forcing" in from_regex("a{9000}").lark


def test_limits_name_themselves() -> None:
    with pytest.raises(GrammarError, match=f"a text of 1,000,000 characters, .* at most {MAX_FIXED_CHARACTERS:,}"):
        from_regex("(a{1000}){1000}")
    with pytest.raises(GrammarError, match="at most 1000 in one"):
        from_schema({"type": "object", "properties": {str(number): {} for number in range(1001)}})
    with pytest.raises(GrammarError, match="must be at most 5000"):
        from_choices([str(number) for number in range(5001)])
    assert read_gbnf('root ::= "a"{5}')
