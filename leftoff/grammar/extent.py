"""How deep a grammar goes and how much text it may leave no choice about, told before it is compiled.

llguidance follows references by recursion: a few thousand, one leading to the next, overflow the stack and end the
process. And wherever a text is fixed, it cuts all of it into tokens again for every token that is written.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from leftoff.grammar.errors import GrammarError
from leftoff.grammar.gbnf import Choice, Class, Name, Node, Repeat, Row, Rules, Text
from leftoff.grammar.lexemes import dependencies_first

MAX_LEVELS = 1000  # 8 MiB of stack hold several times as many
MAX_FIXED_CHARACTERS = 100_000
_MAX_OTHERS = 64


@dataclass(frozen=True)
class Extent:
    """Of a part: its longest run of fixed text, whether that is all of it, and the levels below it.

    Branches that are all fixed may be equal: they count as one, as long as the longest.
    """

    num_fixed: int = 0
    is_fixed: bool = False
    num_levels: int = 1

    def times(self, least: int) -> "Extent":
        """What may be left out is fixed once it has begun."""
        num_fixed = max(least, 1) * self.num_fixed if self.is_fixed else self.num_fixed
        return Extent(num_fixed, self.is_fixed, self.num_levels + 1)


def _row(parts: Iterable[Extent]) -> Extent:
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
    """Of the longest fixed text, if it is bearable."""
    if extent.num_fixed > MAX_FIXED_CHARACTERS:
        raise GrammarError(
            f"it asks for a text of {extent.num_fixed:,} characters, letter by letter:"
            f" must be at most {MAX_FIXED_CHARACTERS:,}"
        )
    return extent.num_fixed


def rules_extent(rules: Rules) -> Extent:
    """The deepest and the longest of all rules. Raises `GrammarError` if any rule goes too deep."""
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
            inner = known.get(name, Extent())  # nothing, if it refers back to this one
            return Extent(inner.num_fixed, inner.is_fixed, inner.num_levels + 1)
        case Row(items):
            return _row(_node_extent(item, known) for item in items)
        case Choice(items):
            return _choice([_node_extent(item, known) for item in items])
        case Repeat(item, least):
            return _node_extent(item, known).times(least)


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
    """Of a regular expression. What cannot be read is left to the compiler, which says why."""
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
    """A group whose branches are read one by one, part by part."""

    def __init__(self) -> None:
        self._branches: list[Extent] = []
        self._parts: list[Extent] = []

    def add(self, part: Extent) -> None:
        self._parts.append(part)

    def repeat(self, least: int) -> None:
        if self._parts:
            self._parts[-1] = self._parts[-1].times(least)

    def branch(self) -> None:
        self._branches.append(_row(self._parts))
        self._parts = []

    def extent(self) -> Extent:
        return _choice([*self._branches, _row(self._parts)])


def schema_extent(schema: Mapping[str, Any]) -> Extent:
    """Levels are those of the JSON text, with what is referred to in the place of a reference, once.

    Fixed text is at most all constants and choices, and the names of what has such a value.
    """
    return _SchemaReader(schema).extent()


class _SchemaReader:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._seen: set[str] = set()

    def extent(self) -> Extent:
        """Depth first, as the compiler goes: each definition stands where it is first referred to."""
        self._check_references()
        deepest = num_fixed = 0
        waiting: list[tuple[object, int]] = [(self._without_definitions(), 0)]
        while waiting:
            value, level = waiting.pop()
            deepest = max(deepest, level)
            if level > MAX_LEVELS:
                raise GrammarError(f"references lead to references more than {MAX_LEVELS} levels deep: use fewer")
            num_fixed += _fixed_texts(value)
            waiting += [(inner, level + 1) for inner in (*self._target(value), *_inner(value))][::-1]
        return Extent(num_fixed, num_levels=deepest)

    def _check_references(self) -> None:
        """Those by other names than a path are not followed here: there may be few of them."""
        waiting: list[object] = [self._schema]
        others: set[str] = set()
        while waiting:
            value = waiting.pop()
            reference = _reference(value)
            if reference is not None and not re.match("#(/|$)", reference):
                others.add(reference)
            waiting += _inner(value)
        if len(others) > _MAX_OTHERS:
            raise GrammarError(f"more than {_MAX_OTHERS} references are no paths: write them as '#/$defs/name'")

    def _without_definitions(self) -> dict[str, Any]:
        return {key: value for key, value in self._schema.items() if key not in ("$defs", "definitions")}

    def _target(self, value: object) -> list[object]:
        reference = _reference(value)
        if reference is None or reference in self._seen or not reference.startswith("#/"):
            return []
        self._seen.add(reference)
        found: object = self._schema
        for key in reference.removeprefix("#/").split("/"):
            found = found.get(key.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
        return [found]


def _reference(value: object) -> str | None:
    reference = value.get("$ref") if isinstance(value, Mapping) else None
    return unquote(reference) if isinstance(reference, str) else None


def _inner(value: object) -> Sequence[object]:
    if isinstance(value, Mapping):
        return [*value.values()]
    return value if isinstance(value, list) else ()


def _fixed_texts(value: object) -> int:
    if not isinstance(value, Mapping):
        return 0
    least, items, properties = value.get("minItems"), value.get("items"), value.get("properties")
    times = least if isinstance(least, int) and _fixed_value(items) else 0
    named = properties.items() if isinstance(properties, Mapping) else ()
    names = sum(len(name) for name, inner in named if _fixed_value(inner))
    return _fixed_value(value) + times * _fixed_value(items) + names


def _fixed_value(schema: object) -> int:
    """The longest text of a constant or a choice."""
    if not isinstance(schema, Mapping):
        return 0
    choices = schema["enum"] if isinstance(schema.get("enum"), list) else [schema.get("const")]
    return max((len(choice) for choice in choices if isinstance(choice, str)), default=0)
