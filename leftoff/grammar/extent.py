"""Measures a grammar before it is compiled: how deep it is nested, and how much text it leaves no choice about.

llguidance follows references by recursion: a chain of a few thousand overflows the stack and ends the process. And it
tokenises a fixed text again for every token of it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from leftoff.grammar.errors import GrammarError
from leftoff.grammar.lexemes import Choice, Class, Concat, Name, Node, Repeat, Rules, Text, dependencies_first

MAX_LEVELS = 1000  # 8 MiB of stack hold several times as many
MAX_FIXED_CHARACTERS = 100_000


@dataclass(frozen=True)
class Extent:
    """The size of a part of a grammar. If all branches are fixed they may be equal, so they count as one fixed text."""

    num_fixed: int = 0  # characters of the longest run of fixed text
    is_fixed: bool = False  # that run is the whole part
    num_levels: int = 1

    def repeated(self, least: int) -> "Extent":
        """The extent of `least` or more repetitions. An optional part is fixed too once it has begun."""
        num_fixed = max(least, 1) * self.num_fixed if self.is_fixed else self.num_fixed
        return Extent(num_fixed, self.is_fixed, self.num_levels + 1)


def _concat(parts: Iterable[Extent]) -> Extent:
    longest = run = num_levels = 0
    is_fixed = True
    for part in parts:
        run = run + part.num_fixed if part.is_fixed else 0
        longest = max(longest, run, part.num_fixed)
        is_fixed = is_fixed and part.is_fixed
        num_levels = max(num_levels, part.num_levels)
    return Extent(longest, is_fixed, num_levels + 1)


def _choice(parts: Sequence[Extent]) -> Extent:
    return Extent(
        max(part.num_fixed for part in parts),
        all(part.is_fixed for part in parts),
        1 + max(part.num_levels for part in parts),
    )


def checked_length(extent: Extent) -> int:
    """Returns the length of the longest fixed text. Raises `GrammarError` if it is too long."""
    if extent.num_fixed > MAX_FIXED_CHARACTERS:
        raise GrammarError(
            f"it asks for a text of {extent.num_fixed:,} characters, letter by letter:"
            f" must be at most {MAX_FIXED_CHARACTERS:,}"
        )
    return extent.num_fixed


def rules_extent(rules: Rules) -> Extent:
    """The greatest extent of any rule. Raises `GrammarError` if one is too deep."""
    known: dict[str, Extent] = {}
    for name in dependencies_first(rules):
        known[name] = _node_extent(rules[name], known)
        if known[name].num_levels > MAX_LEVELS:
            raise GrammarError(f"rules refer to each other more than {MAX_LEVELS} deep: use fewer of them")
    return _choice([*known.values()])


def _node_extent(node: Node, known: Mapping[str, Extent]) -> Extent:
    match node:
        case Text(text):
            return Extent(len(text), is_fixed=True)
        case Class(ranges):
            return Extent(1, is_fixed=len(ranges) == 1 and ranges[0][0] == ranges[0][1])
        case Name(name):
            inner = known.get(name, Extent())  # empty for a rule that refers back to this one
            return Extent(inner.num_fixed, inner.is_fixed, inner.num_levels + 1)
        case Concat(items):
            return _concat(_node_extent(item, known) for item in items)
        case Choice(items):
            return _choice([_node_extent(item, known) for item in items])
        case Repeat(item, least):
            return _node_extent(item, known).repeated(least)


_ITEM = re.compile(
    r"""(?P<assertion>[\^$]|\\[bBAzZ])
      | (?P<class>\[\^?\]?(?:[^\[\]\\]|\\.|\[[^\]]*\])*\]|\\(?:[pP](?:\{[^}]*\}|.)|[dDsSwW])|\.)
      | (?P<character>\\(?:[xuU]\{[^}]*\}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.))
      | (?P<flags>\(\?[a-zA-Z-]*\))
      | (?P<open>\((?:\?(?:P?<[^>]*>|[a-zA-Z-]*:))?)
      | (?P<close>\))
      | (?P<branch>\|)
      | (?P<times>(?:[*+?]|\{(?P<least>\d+)(?:,\d*)?\})\??)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_ONE_MEMBER = re.compile(r"\[\\?.\]", re.DOTALL)


def pattern_extent(pattern: str) -> Extent:
    """The extent of a regular expression. One with a syntax error is left to the compiler, which says what is wrong."""
    groups = [_Group()]
    for found in _items(pattern):
        match found.lastgroup:
            case "open":
                groups.append(_Group())
            case "close" if len(groups) > 1:
                closed = groups.pop().extent()
                groups[-1].add(closed)
            case "branch":
                groups[-1].branch()
            case "times":
                groups[-1].repeat(_least(found))
            case "assertion" | "flags":
                groups[-1].add(Extent(0, is_fixed=True))
            case "class":
                groups[-1].add(Extent(1, is_fixed=bool(_ONE_MEMBER.fullmatch(found[0]))))
            case _:
                groups[-1].add(Extent(1, is_fixed=True))
    return _choice([group.extent() for group in groups])


def _items(pattern: str) -> Iterator[re.Match[str]]:
    at = 0
    while found := _ITEM.match(pattern, at):
        yield found
        at = found.end()


def _least(times: re.Match[str]) -> int:
    if times["least"] is None:
        return int(times[0][0] == "+")
    return min(int(times["least"][:9]), MAX_FIXED_CHARACTERS + 1)  # a number may be as long as the pattern


class _Group:
    """A group of a regular expression that is not closed yet."""

    def __init__(self) -> None:
        self._branches: list[Extent] = []
        self._parts: list[Extent] = []

    def add(self, part: Extent) -> None:
        self._parts.append(part)

    def repeat(self, least: int) -> None:
        if self._parts:
            self._parts[-1] = self._parts[-1].repeated(least)

    def branch(self) -> None:
        self._branches.append(_concat(self._parts))
        self._parts = []

    def extent(self) -> Extent:
        return _choice([*self._branches, _concat(self._parts)])
