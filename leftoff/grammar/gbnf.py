"""Reads llama.cpp's grammar notation (GBNF) and translates it to llguidance's dialect of Lark."""

import json
import re

from leftoff.grammar.errors import GrammarError
from leftoff.grammar.extent import checked_length, rules_extent
from leftoff.grammar.grammar import Grammar, check_characters
from leftoff.grammar.lexemes import (
    Choice,
    Class,
    Concat,
    Name,
    Node,
    Range,
    Repeat,
    Rules,
    Text,
    names_in,
    regular_rules,
    safe_lexemes,
)

MAX_CHARACTERS = 64 << 10
MAX_NESTING = 64
_LAST = 0x10FFFF
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]"}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}

_SPACE = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_SPACE_AND_LINES = re.compile(r"(?:\s|#[^\r\n]*)*")
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_TIMES = re.compile(r"\{\s*(\d{1,6})\s*(?:(,)\s*(\d{1,6})?\s*)?\}")
_SURROGATES = range(0xD800, 0xE000)  # half characters, which UTF-8 does not have


def from_gbnf(source: str) -> Grammar:
    """Lexemes have upper-case names in Lark and refer only to lexemes: a regular but unsafe rule gets two names."""
    rules = read_gbnf(source)
    num_fixed = checked_length(rules_extent(rules))
    regular, safe = regular_rules(rules), safe_lexemes(rules)
    # Numbers instead of the client's names: Lark allows fewer characters in a name.
    lexemes = {name: f"W{index}" for index, name in enumerate(rules) if name in regular}
    names = {name: lexemes[name] if name in safe else f"r{index}" for index, name in enumerate(rules)}
    as_lexemes = [f"{lexemes[name]}: {_lark(rules[name], lexemes)}" for name in lexemes]
    others = [f"{names[name]}: {_lark(node, names)}" for name, node in rules.items() if name not in safe]
    return Grammar(names["root"], (*others, *as_lexemes), num_fixed)


def _lark(node: Node, names: dict[str, str]) -> str:
    match node:
        case Text(text):
            return json.dumps(text, ensure_ascii=False)
        case Class(ranges):
            return f"/[{''.join(map(_range, ranges))}]/"
        case Name(name):
            return names[name]
        case Concat(items):
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


def read_gbnf(source: str) -> Rules:
    """The rules by name. `root` and all rules that are referred to exist."""
    check_characters(len(source), MAX_CHARACTERS)
    rules = _Reader(source).rules()
    if "root" not in rules:
        raise GrammarError("there is no rule 'root', where a grammar begins")
    for name in {name for node in rules.values() for name in names_in(node)}:
        if name not in rules:
            raise GrammarError(f"there is no rule {name!r}")
    return rules


class _Reader:
    """A recursive-descent parser."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._nesting = 0

    def rules(self) -> Rules:
        rules: Rules = {}
        self._skip(_SPACE_AND_LINES)
        while self._at < len(self._source):
            name = self._take(_NAME, "the name of a rule")
            self._skip(_SPACE)
            self._expect("::=")
            self._skip(_SPACE_AND_LINES)
            rules[name] = self._choice(nested=False)
            self._skip(_SPACE_AND_LINES)
        return rules

    def _choice(self, *, nested: bool) -> Node:
        items = [self._concat(nested=nested)]
        while self._skip_bar():
            items.append(self._concat(nested=nested))
        return items[0] if len(items) == 1 else Choice(tuple(items))

    def _skip_bar(self) -> bool:
        """Whether another branch follows, perhaps on the next line. Moves behind its bar."""
        match = _SPACE_AND_LINES.match(self._source, self._at)
        assert match
        if not self._source.startswith("|", match.end()):
            return False
        self._at = match.end() + 1
        self._skip(_SPACE_AND_LINES)
        return True

    def _concat(self, *, nested: bool) -> Node:
        items: list[Node] = []
        space = _SPACE_AND_LINES if nested else _SPACE
        while (item := self._item()) is not None:
            self._skip(space)
            items.append(self._repeated(item))
            self._skip(space)
        return items[0] if len(items) == 1 else Concat(tuple(items))

    def _item(self) -> Node | None:
        match self._peek():
            case '"':
                return self._text()
            case "[":
                return self._class()
            case "(":
                return self._group()
            case ".":
                self._at += 1
                return Class(((0, _LAST),))
            case "<" | "!":
                raise self._error("tokens cannot be named here: write their text in quotes")
        return Name(self._take(_NAME, "a name")) if _NAME.match(self._source, self._at) else None

    def _group(self) -> Node:
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise self._error(f"groups are nested more than {MAX_NESTING} deep")
        self._at += 1
        self._skip(_SPACE_AND_LINES)
        inner = self._choice(nested=True)
        self._skip(_SPACE_AND_LINES)
        self._expect(")")
        self._nesting -= 1
        return inner

    def _repeated(self, item: Node) -> Node:
        sign = self._peek()
        if sign in ("*", "+", "?"):
            self._at += 1
            return Repeat(item, int(sign == "+"), 1 if sign == "?" else None)
        if sign != "{":
            return item
        times = _TIMES.match(self._source, self._at)
        if times is None:
            raise self._error("repetitions are written {2}, {2,} or {2,5}")
        self._at = times.end()
        least = int(times[1])
        return Repeat(item, least, least if times[2] is None else int(times[3]) if times[3] else None)

    def _text(self) -> Node:
        self._at += 1
        characters: list[str] = []
        while self._peek() != '"':
            characters.append(self._character())
        self._at += 1
        return Text("".join(characters)) if characters else Concat(())

    def _class(self) -> Node:
        self._at += 1
        is_negated = self._peek() == "^"
        self._at += is_negated
        ranges: list[Range] = []
        while self._peek() != "]":
            low = high = self._character()
            if self._peek() == "-" and self._source[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                high = self._character()
            if high < low:
                raise self._error(f"the range from {low!r} to {high!r} is empty")
            ranges.append((ord(low), ord(high)))
        self._at += 1
        if not ranges and not is_negated:
            raise self._error("the class [] has no characters")
        return Class(_complement(ranges) if is_negated else tuple(ranges))

    def _character(self) -> str:
        character = self._peek()
        if character in ("", "\n", "\r"):
            raise self._error("a text or class is not closed")
        self._at += 1
        if character != "\\":
            return character
        kind = self._peek()
        self._at += 1
        if kind in _HEX_DIGITS:
            return self._code_point(_HEX_DIGITS[kind])
        if kind not in _ESCAPES:
            raise self._error(f"there is no escape \\{kind}")
        return _ESCAPES[kind]

    def _code_point(self, num_digits: int) -> str:
        digits = self._source[self._at : self._at + num_digits]
        if not re.fullmatch(f"[0-9a-fA-F]{{{num_digits}}}", digits) or not _is_character(int(digits, 16)):
            raise self._error(f"{digits!r} is no code of a character")
        self._at += num_digits
        return chr(int(digits, 16))

    def _peek(self) -> str:
        return self._source[self._at : self._at + 1]

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self._source, self._at)
        self._at = match.end() if match else self._at

    def _take(self, pattern: re.Pattern[str], what: str) -> str:
        match = pattern.match(self._source, self._at)
        if match is None:
            raise self._error(f"expected {what}")
        self._at = match.end()
        return match[0]

    def _expect(self, sign: str) -> None:
        if not self._source.startswith(sign, self._at):
            raise self._error(f"expected {sign!r}")
        self._at += len(sign)

    def _error(self, problem: str) -> GrammarError:
        line = self._source.count("\n", 0, self._at) + 1
        return GrammarError(f"line {line}: {problem}, before {self._source[self._at : self._at + 20]!r}")


def _is_character(code: int) -> bool:
    return code <= _LAST and not 0xD800 <= code <= 0xDFFF


def _complement(ranges: list[Range]) -> tuple[Range, ...]:
    found, low = [], 0
    for start, end in sorted(ranges):
        if start > low:
            found.append((low, start - 1))
        low = max(low, end + 1)
    return (*found, (low, _LAST)) if low <= _LAST else tuple(found)
