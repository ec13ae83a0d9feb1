"""Which rules of a grammar may be read by a lexer, as one word, without changing what the grammar means.

llguidance's lexer is greedy: a word goes on as long as it can. A rule is safe as a word if nothing that may follow it
can also continue it. A rule that is not safe is read character by character, which is exact, and slow.
"""

from collections.abc import Callable, Sequence

from leftoff.grammar.gbnf import Choice, Class, Name, Node, Range, Repeat, Row, Rules, Text, names_in

Characters = frozenset[Range]

_NONE: Characters = frozenset()
_ALL: Characters = frozenset({(0, 0x10FFFF)})


def regular_rules(rules: Rules) -> frozenset[str]:
    """The names of the rules that never come back to themselves, nor to one that does."""
    recursive = {name for name in rules if name in _reachable(rules, name)}
    return frozenset(name for name in rules if name not in recursive and not _reachable(rules, name) & recursive)


def safe_words(rules: Rules) -> frozenset[str]:
    """The names of the rules that may be words wherever they stand. If `root` is one, it is the whole grammar."""
    regular = regular_rules(rules)
    if "root" in regular:
        return regular
    facts = _Facts(rules)
    return frozenset(name for name in regular if not _overlap(facts.continuing(rules[name]), facts.follow[name]))


class _Facts:
    """What rules begin with, and what follows them, by going through them until nothing new is found."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._empty: set[str] = set()
        self._first: dict[str, Characters] = dict.fromkeys(rules, _NONE)
        self.follow: dict[str, Characters] = dict.fromkeys(rules, _NONE)
        _settle(self._find_beginnings)
        _settle(self._find_followers)

    def may_be_empty(self, node: Node) -> bool:
        match node:
            case Name(name):
                return name in self._empty
            case Row(items):
                return all(map(self.may_be_empty, items))
            case Choice(items):
                return any(map(self.may_be_empty, items))
            case Repeat(item, least):
                return least == 0 or self.may_be_empty(item)
        return False

    def first(self, node: Node) -> Characters:
        """The characters it may begin with."""
        match node:
            case Text(text):
                return frozenset({(ord(text[0]), ord(text[0]))})
            case Class(ranges):
                return frozenset(ranges)
            case Name(name):
                return self._first[name]
            case Row(items):
                return self._first_of_row(items)
            case Choice(items):
                return _NONE.union(*map(self.first, items))
            case Repeat(item):
                return self.first(item)

    def continuing(self, node: Node) -> Characters:
        """The characters by which something that is whole may yet go on. Only for rules without recursion."""
        match node:
            case Name(name):
                return self.continuing(self._rules[name])
            case Row(items):
                return self._continuing_row(items)
            case Choice(items):
                return self._continuing_choice(items)
            case Repeat(item, _, most):
                again = self.first(item) if most != 1 or self.may_be_empty(node) else _NONE
                return self.continuing(item) | again
        return _NONE

    def _continuing_row(self, items: Sequence[Node]) -> Characters:
        found = _NONE
        for item in reversed(items):
            found |= self.continuing(item)
            if not self.may_be_empty(item):
                break
            found |= self.first(item)
        return found

    def _continuing_choice(self, items: Sequence[Node]) -> Characters:
        """One branch may be the beginning of another: unless they can be told apart at once, anything may follow."""
        seen = _NONE
        for item in items:
            if _overlap(seen, self.first(item)):
                return _ALL
            seen |= self.first(item)
        goes_on = seen if any(map(self.may_be_empty, items)) else _NONE
        return goes_on.union(*map(self.continuing, items))

    def _first_of_row(self, items: Sequence[Node]) -> Characters:
        found = _NONE
        for item in items:
            found |= self.first(item)
            if not self.may_be_empty(item):
                break
        return found

    def _find_beginnings(self) -> bool:
        before = len(self._empty), self._first.copy()
        for name, node in self._rules.items():
            self._first[name] |= self.first(node)
            if self.may_be_empty(node):
                self._empty.add(name)
        return before != (len(self._empty), self._first)

    def _find_followers(self) -> bool:
        before = self.follow.copy()
        for name, node in self._rules.items():
            self._see(node, self.follow[name])
        return before != self.follow

    def _see(self, node: Node, after: Characters) -> None:
        match node:
            case Name(name):
                self.follow[name] |= after
            case Row(items):
                for item in reversed(items):
                    self._see(item, after)
                    after = self.first(item) | (after if self.may_be_empty(item) else _NONE)
            case Choice(items):
                for item in items:
                    self._see(item, after)
            case Repeat(item, _, most):
                self._see(item, after if most == 1 else after | self.first(item))


def _settle(find: Callable[[], bool]) -> None:
    while find():
        pass


def _reachable(rules: Rules, name: str) -> set[str]:
    found: set[str] = set()
    waiting = [name]
    while waiting:
        new = names_in(rules[waiting.pop()]) - found
        found |= new
        waiting += new
    return found


def _overlap(left: Characters, right: Characters) -> bool:
    return any(low <= end and start <= high for low, high in left for start, end in right)
