"""Grammar rules as trees, and which rules the lexer may read as one lexeme without changing the grammar's meaning.

llguidance's lexer is greedy: a lexeme takes as many characters as it can. A rule is safe as a lexeme if no character
that may follow it can also continue it. Any other rule is parsed character by character, which is exact but slow.
llguidance's own `gbnf_to_lark` makes a lexeme of every regular rule: `root ::= word "s"` with `word ::= [a-z]+` then
accepts nothing. So grammars are not left to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from leftoff.grammar.errors import GrammarError

Range = tuple[int, int]


@dataclass(frozen=True)
class Text:
    """A literal text."""

    text: str


@dataclass(frozen=True)
class Class:
    """One character in these ranges of code points."""

    ranges: tuple[Range, ...]


@dataclass(frozen=True)
class Name:
    """A reference to a rule."""

    name: str


@dataclass(frozen=True)
class Concat:
    """Items one after the other."""

    items: tuple["Node", ...]


@dataclass(frozen=True)
class Choice:
    """One of several items."""

    items: tuple["Node", ...]


@dataclass(frozen=True)
class Repeat:
    """An item, between `least` and `most` times."""

    item: "Node"
    least: int
    most: int | None


Node = Text | Class | Name | Concat | Choice | Repeat
Rules = dict[str, Node]
Characters = frozenset[Range]

_NONE: Characters = frozenset()
_ALL: Characters = frozenset({(0, 0x10FFFF)})
_MAX_STEPS = 500_000  # one for each part of a rule or range of characters: half a second


def names_in(node: Node) -> set[str]:
    """The names of the rules that it refers to."""
    match node:
        case Name(name):
            return {name}
        case Concat(items) | Choice(items):
            return {name for item in items for name in names_in(item)}
        case Repeat(item):
            return names_in(item)
    return set()


def regular_rules(rules: Rules) -> frozenset[str]:
    """The names of the rules that reach no recursive rule: each could be a regular expression."""
    regular: set[str] = set()
    for name in dependencies_first(rules):
        if names_in(rules[name]) <= regular:
            regular.add(name)
    return frozenset(regular)


def safe_lexemes(rules: Rules) -> frozenset[str]:
    """The names of the rules that may be lexemes wherever they are used. A regular `root` is always safe."""
    regular = regular_rules(rules)
    if "root" in regular:
        return regular
    sets = _CharacterSets(rules)
    return frozenset(name for name in regular if not _overlap(sets.continuing(rules[name]), sets.follow[name]))


def dependencies_first(rules: Rules) -> list[str]:
    """The rules in an order in which each comes after those it refers to, except where they refer back to it."""
    order: dict[str, None] = {}
    begun: set[str] = set()
    waiting = [*reversed(rules)]
    while waiting:
        name = waiting[-1]
        if name in begun:
            order.setdefault(waiting.pop())
            continue
        begun.add(name)
        waiting += [used for used in names_in(rules[name]) if used not in begun]
    return [*order]


class _CharacterSets:
    """The FIRST and FOLLOW sets of all rules, found by iterating to a fixed point.

    With dependencies first this takes few rounds. A grammar that is made to take more is refused.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._order = dependencies_first(rules)
        self._steps_left = _MAX_STEPS
        self._continuing: dict[str, Characters] = {}
        self._empty: set[str] = set()
        self._first: dict[str, Characters] = dict.fromkeys(rules, _NONE)
        self.follow: dict[str, Characters] = dict.fromkeys(rules, _NONE)
        while self._extend_first():
            pass
        while self._extend_follow():
            pass

    def may_be_empty(self, node: Node) -> bool:
        match node:
            case Name(name):
                return name in self._empty
            case Concat(items):
                return all(map(self.may_be_empty, items))
            case Choice(items):
                return any(map(self.may_be_empty, items))
            case Repeat(item, least):
                return least == 0 or self.may_be_empty(item)
        return False

    def first(self, node: Node) -> Characters:
        """The characters that it may begin with."""
        self._spend(1)
        match node:
            case Text(text):
                return frozenset({(ord(text[0]), ord(text[0]))})
            case Class(ranges):
                return frozenset(ranges)
            case Name(name):
                return self._first[name]
            case Concat(items):
                return self._first_of_concat(items)
            case Choice(items):
                return _NONE.union(*map(self.first, items))
            case Repeat(item):
                return self.first(item)

    def continuing(self, node: Node) -> Characters:
        """The characters that may come after a complete match and make a longer one. Only for regular rules."""
        match node:
            case Name(name):
                if name not in self._continuing:
                    self._continuing[name] = self.continuing(self._rules[name])
                return self._continuing[name]
            case Concat(items):
                return self._continuing_concat(items)
            case Choice(items):
                return self._continuing_choice(items)
            case Repeat(item):
                return self._continuing_repeat(node, item)
        return _NONE

    def _continuing_repeat(self, node: Repeat, item: Node) -> Characters:
        found, again = self.continuing(item), self.first(item)
        if node.most == 1:
            return found | again if node.least == 0 else found
        if _overlap(found, again):
            return _ALL  # where one ends and the next begins is not clear
        return found if node.least == node.most and not self.may_be_empty(item) else found | again

    def _continuing_concat(self, items: Sequence[Node]) -> Characters:
        found = _NONE
        for item in items:
            self._spend(len(found))
            first = self.first(item)
            if _overlap(found, first):
                return _ALL  # what comes may belong to this item or to those before it
            found = self.continuing(item) | (found | first if self.may_be_empty(item) else _NONE)
        return found

    def _continuing_choice(self, items: Sequence[Node]) -> Characters:
        """A branch may be a prefix of another, so any character may continue them unless their first ones differ."""
        seen = _NONE
        for item in items:
            self._spend(len(seen))
            if _overlap(seen, self.first(item)):
                return _ALL
            seen |= self.first(item)
        after_empty = seen if any(map(self.may_be_empty, items)) else _NONE
        return after_empty.union(*map(self.continuing, items))

    def _first_of_concat(self, items: Sequence[Node]) -> Characters:
        found = _NONE
        for item in items:
            found |= self.first(item)
            if not self.may_be_empty(item):
                break
        return found

    def _extend_first(self) -> bool:
        """Goes through all rules once; returns whether anything was added."""
        before = len(self._empty), self._first.copy()
        for name in self._order:
            node = self._rules[name]
            self._first[name] |= self.first(node)
            self._spend(len(self._first[name]))
            if self.may_be_empty(node):
                self._empty.add(name)
        return before != (len(self._empty), self._first)

    def _extend_follow(self) -> bool:
        before = self.follow.copy()
        for name in reversed(self._order):
            self._add_followers(self._rules[name], self.follow[name])
        return before != self.follow

    def _spend(self, num_steps: int) -> None:
        self._steps_left -= num_steps
        if self._steps_left < 0:
            raise GrammarError("its rules refer to each other in too many ways: use fewer of them")

    def _add_followers(self, node: Node, after: Characters) -> None:
        self._spend(1 + len(after))
        match node:
            case Name(name):
                self.follow[name] |= after
            case Concat(items):
                for item in reversed(items):
                    self._add_followers(item, after)
                    after = self.first(item) | (after if self.may_be_empty(item) else _NONE)
            case Choice(items):
                for item in items:
                    self._add_followers(item, after)
            case Repeat(item, _, most):
                self._add_followers(item, after if most == 1 else after | self.first(item))


def _overlap(left: Characters, right: Characters) -> bool:
    """Whether a character is in both. Merges sorted ranges, since a class may have thousands."""
    ranges = sorted([(*span, 0) for span in left] + [(*span, 1) for span in right])
    ends = [-1, -1]  # the last character so far, of either side
    for low, high, side in ranges:
        if low <= ends[1 - side]:
            return True
        ends[side] = max(ends[side], high)
    return False
