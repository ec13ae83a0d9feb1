"""llama.cpp's grammars in llguidance's dialect, meaning the same."""

import json

from leftoff.grammar.extent import checked_length, rules_extent
from leftoff.grammar.gbnf import Choice, Class, Name, Node, Range, Repeat, Row, Text, read_gbnf
from leftoff.grammar.grammar import Grammar
from leftoff.grammar.lexemes import regular_rules, safe_words

_SURROGATES = range(0xD800, 0xE000)  # half characters, which UTF-8 does not have


def from_gbnf(source: str) -> Grammar:
    """In Lark a word has a name in capitals, and refers to words only: what is regular but not safe has two names."""
    rules = read_gbnf(source)
    num_fixed = checked_length(rules_extent(rules))
    regular, safe = regular_rules(rules), safe_words(rules)
    # Numbers instead of the client's names: Lark allows fewer characters.
    words = {name: f"W{index}" for index, name in enumerate(rules) if name in regular}
    names = {name: words[name] if name in safe else f"r{index}" for index, name in enumerate(rules)}
    as_words = [f"{words[name]}: {_lark(rules[name], words)}" for name in words]
    others = [f"{names[name]}: {_lark(node, names)}" for name, node in rules.items() if name not in safe]
    return Grammar(names["root"], (*others, *as_words), num_fixed)


def _lark(node: Node, names: dict[str, str]) -> str:
    match node:
        case Text(text):
            return json.dumps(text, ensure_ascii=False)
        case Class(ranges):
            return f"/[{''.join(map(_range, ranges))}]/"
        case Name(name):
            return names[name]
        case Row(items):
            return " ".join(_lark(item, names) for item in items) or '""'
        case Choice(items):
            return f"({' | '.join(_lark(item, names) for item in items)})"
        case Repeat(item, least, most):
            return f"({_lark(item, names)}){{{least},{'' if most is None else most}}}"


def _range(characters: Range) -> str:
    low, high = characters
    low = 0xE000 if low in _SURROGATES else low
    high = 0xD7FF if high in _SURROGATES else high
    return f"\\x{{{low:x}}}-\\x{{{high:x}}}"
