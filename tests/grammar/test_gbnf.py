"""llama.cpp's grammars mean here what they mean there."""

import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leftoff.grammar.compile import Grammars
from leftoff.grammar.errors import GrammarError
from leftoff.grammar.gbnf import from_gbnf, read_gbnf
from leftoff.grammar.lexemes import Choice, Class, Concat, Name, Node, Repeat, Text
from tests.grammar.walk import accepts

JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::= "[" ws ( value ("," ws value)* )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

ws ::= | " " | "\n" [ \t]{0,20}
"""
SUMS = """
root ::= sum "\\n"
sum  ::= term ([-+*/] term)*
term ::= name | [0-9]+ | "(" sum ")"
name ::= [a-z] [a-z0-9_]*
"""


@pytest.mark.parametrize(
    ("source", "good", "bad"),
    [
        ('root ::= "yes" | "no"', ["yes", "no"], ["ye", "yesno", ""]),
        ("root ::= [^a-c]{2,3}", ["xy", "xyz", "é\n"], ["x", "xa", "wxyz"]),
        (r'root ::= "\x41é\U0001F600"', ["Aé😀"], ["Aé"]),
        ("root ::= . .", ["é\n"], ["a"]),
        ("root ::= a? b*\na ::= [x]\nb ::= [y]+", ["", "x", "yyy", "xyy"], ["yx"]),
        ("# sums\nroot ::= ( # one\n [0-9]\n | [a-f] ) {2}\n", ["3a"], ["3"]),
        ("root ::= one\n  | two\none ::= [1]\ntwo ::= [2]", ["1", "2"], ["12"]),
        (JSON, ["{}", '{"a": [1, 2.5, {"b": null}, "\\u00e9"]}', '{\n  "a":-10e5}'], ["[1]", '{"a":1,}', '{"a": 01}']),
        (SUMS, ["(1+2)*x3\n", "abc\n", "((a))\n"], ["1+\n", "(1\n", "3x\n"]),
        # What follows a word may also continue it: a greedy lexer would never get past the word.
        ('root ::= word "s"\nword ::= [a-z]+', ["cats", "ss"], ["s", "cat"]),
        ('root ::= ("a" | "ab") "b"', ["ab", "abb"], ["a", "aab"]),
        ('root ::= "(" root ")" | word "c"\nword ::= [a-z]* "b"', ["abc", "(abbc)", "bcbc"], ["c", "(ac)"]),
        ('root ::= "(" root ")" | ab "b"\nab ::= ("a" | "b" "a"?)+', ["ab", "babb", "(bb)"], ["b", "a"]),
        ('root ::= list\nlist ::= "(" list ")" | word "s"\nword ::= [a-z]+', ["cats", "((ss))"], ["(cat)", "(cats"]),
    ],
)
def test_texts_are_told_apart(grammars: Grammars, source: str, good: list[str], bad: list[str]) -> None:
    grammar = from_gbnf(source)
    assert [text for text in good if not accepts(grammars, grammar, text)] == []
    assert [text for text in bad if accepts(grammars, grammar, text)] == []


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("root ::= foo", "there is no rule 'foo'"),
        ('main ::= "a"', "there is no rule 'root'"),
        ("", "there is no rule 'root'"),
        ('root ::= "a', "line 1: a text or class is not closed"),
        ('x ::= "b"\nroot ::= [a', "line 2: a text or class is not closed"),
        ('root ::= ("a"', "expected ')'"),
        ('root = "a"', "expected '::='"),
        (r'root ::= "\q"', r"there is no escape \q"),
        (r'root ::= "\ud800"', "'d800' is no code of a character"),
        ('root ::= "a"{x}', "repetitions are written"),
        ("root ::= [z-a]", "the range from 'z' to 'a' is empty"),
        ("root ::= <[12]>", "tokens cannot be named"),
        ("root ::= " + 100 * "(", "nested more than 64 deep"),
        ("root ::= " + 70_000 * " ", "characters: must be at most"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(source: str, reason: str) -> None:
    with pytest.raises(GrammarError, match=re.escape(reason)):
        from_gbnf(source)


def test_a_grammar_that_leads_nowhere_is_refused(grammars: Grammars) -> None:
    with pytest.raises(GrammarError, match="there is no text that follows it"):
        grammars.compile(from_gbnf("root ::= root"))


# --- any grammar without recursion, against one that is read letter by letter

_LETTERS = st.text("ab", min_size=1, max_size=2).map(Text) | st.just(Class(((97, 98),)))
_NODES = st.recursive(
    _LETTERS | st.sampled_from([Name("x"), Name("y")]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: Concat(tuple(items))),
        st.lists(inner, min_size=2, max_size=3).map(lambda items: Choice(tuple(items))),
        st.tuples(inner, st.integers(0, 1), st.sampled_from([1, 2, None])).map(lambda parts: Repeat(*parts)),
    ),
    max_leaves=6,
)
_TEXTS = ["", *(f"{number:b}"[1:].translate({48: "a", 49: "b"}) for number in range(2, 64))]


def written(node: Node) -> str:
    match node:
        case Text(text):
            return f'"{text}"'
        case Class():
            return "[a-b]"
        case Name(name):
            return name
        case Concat(items):
            return f"({' '.join(map(written, items))})"
        case Choice(items):
            return f"({' | '.join(map(written, items))})"
        case Repeat(item, least, most):
            return f"({written(item)}){{{least},{'' if most is None else most}}}"


def ends(node: Node, text: str, start: int, rules: dict[str, Node]) -> set[int]:
    """Where a match that begins at `start` may end."""
    match node:
        case Text(literal):
            return {start + len(literal)} if text.startswith(literal, start) else set()
        case Class():
            return {start + 1} if start < len(text) else set()
        case Name(name):
            return ends(rules[name], text, start, rules)
        case Concat(items):
            found = {start}
            for item in items:
                found = {end for begin in found for end in ends(item, text, begin, rules)}
            return found
        case Choice(items):
            return {end for item in items for end in ends(item, text, start, rules)}
        case Repeat(item, least, most):
            return {*_repeated(item, text, start, rules, least, len(text) + 2 if most is None else most)}


def _repeated(item: Node, text: str, start: int, rules: dict[str, Node], least: int, most: int) -> Iterator[int]:
    found = {start}
    for times in range(max(least, most) + 1):
        if least <= times <= most:
            yield from found
        found = {end for begin in found for end in ends(item, text, begin, rules)}


@settings(max_examples=25, deadline=None)
@given(_NODES, _LETTERS, _LETTERS)
def test_any_grammar_without_recursion_is_exact(grammars: Grammars, root: Node, x: Node, y: Node) -> None:
    rules = {"root": root, "x": x, "y": y}
    source = "\n".join(f"{name} ::= {written(node)}" for name, node in rules.items())
    assert read_gbnf(source).keys() == rules.keys()
    grammar = from_gbnf(source)
    for text in _TEXTS[:31]:
        assert accepts(grammars, grammar, text) == (len(text) in ends(root, text, 0, rules)), (source, text)
