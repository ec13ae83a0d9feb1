"""Remembers what the body of a template's loop over messages came out as, so that a message is rendered once.

With the next turn, most rounds of such a loop see the same message as before. What else a round depends on is found
when the template is parsed: its *inputs*, the largest expressions in the body that do not contain the message, such as
`loop.first` or `loop.index0 > last_question`. If a round has the same message and equal inputs, it has the same text.

A body is left as it is if it does anything besides writing text: if it sets attributes of a namespace, leaves the loop,
asks for the date, or calls what is not known to be pure.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from jinja2 import nodes
from jinja2.runtime import Undefined

from leftoff.chat.template.budget import current

RECALL, IS_KNOWN, TEXT, KEEP = "recall!", "is known!", "text!", "keep!"  # no template can write these names
_ROUND = "leftoff_round"
_PURE_CALLS = frozenset({"raise_exception", "range"})
_PURE = (
    *(nodes.Output, nodes.TemplateData, nodes.If, nodes.Assign, nodes.For, nodes.Name, nodes.Const, nodes.Getattr),
    *(nodes.Getitem, nodes.Slice, nodes.Filter, nodes.Test, nodes.Compare, nodes.Operand, nodes.And, nodes.Or),
    *(nodes.Not, nodes.CondExpr, nodes.Concat, nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod),
    *(nodes.Pow, nodes.Neg, nodes.Pos, nodes.List, nodes.Tuple, nodes.Dict, nodes.Pair, nodes.Call, nodes.Keyword),
    nodes.ExprStmt,
)
_SCALARS = (str, int, float, bool, type(None))
Key = tuple[object, ...]


@dataclass(eq=False)
class RoundMemo:
    """The texts of rounds by message and inputs, in this turn and in the last one."""

    last: dict[Key, str] = field(default_factory=dict)
    texts: dict[Key, str] = field(default_factory=dict)
    items: dict[int, object] = field(default_factory=dict)  # messages and tools of this turn, by their identity
    num_rendered: int = 0  # rounds over a message whose body was run

    def add(self, items: Iterable[object]) -> None:
        """Remembers the rounds over these. The items of the last turn must be kept until this one is made."""
        self.items.update((id(item), item) for item in items)


@dataclass(eq=False)
class Round:
    """One round: under which key its text is remembered, if it is, and the text, if that is known."""

    key: Key | None
    text: str | None


def recall(message: object, number: int, *inputs: object) -> Round:
    """At the beginning of a round. One that depends on more than plain values has no key."""
    memo = current().rounds
    if memo is None or id(message) not in memo.items:
        return Round(None, None)
    parts: list[object] = [number, id(message)]
    for value in inputs:
        kind = type(value)
        if kind not in _SCALARS and not isinstance(value, Undefined):
            return Round(None, None)
        parts += (kind, value if kind in _SCALARS else None)
    key = tuple(parts)
    return Round(key, memo.texts.get(key, memo.last.get(key)))


def is_known(one: Round) -> bool:
    """Whether the body need not be run."""
    memo = current().rounds
    if memo is not None and one.key is not None and one.text is not None:
        memo.texts[one.key] = one.text
    return one.text is not None


def text(one: Round) -> str:
    """The text of a round that is known."""
    return one.text or ""


def keep(made: str, one: Round) -> str:
    """After the body was run."""
    memo = current().rounds
    if memo is not None and one.key is not None:
        memo.num_rendered += 1
        memo.texts[one.key] = made
    return made


FILTERS = {RECALL: recall, IS_KNOWN: is_known, TEXT: text, KEEP: keep}


def remember_rounds(template: nodes.Template) -> bool:
    """Changes the loops of a template whose rounds can be remembered. False if there are none."""
    macros, num_changed = _pure_macros(template), 0
    for number, loop in enumerate(_loops(template.body)):
        inputs = _Inputs(macros)
        if isinstance(loop.target, nodes.Name) and _is_plain(loop) and inputs.read(loop.body, {loop.target.name}):
            loop.body = _remembered(loop, number, inputs.found)
            num_changed += 1
    return num_changed > 0


def _loops(body: Sequence[nodes.Node]) -> Iterator[nodes.For]:
    """The outermost loops of a body."""
    for node in body:
        if isinstance(node, nodes.For):
            yield node
        elif isinstance(node, nodes.If):
            yield from _loops([*node.body, *node.elif_, *node.else_])


def _is_plain(loop: nodes.For) -> bool:
    return not (loop.else_ or loop.recursive or loop.test)


def _remembered(loop: nodes.For, number: int, inputs: Sequence[nodes.Expr]) -> list[nodes.Node]:
    assert isinstance(loop.target, nodes.Name)
    line = loop.lineno
    message = nodes.Name(loop.target.name, "load", lineno=line)
    round_ = nodes.Name(_ROUND, "load", lineno=line)
    recalled = _filter(message, RECALL, line, [nodes.Const(number, lineno=line), *inputs])
    known = nodes.Output([_filter(round_, TEXT, line)], lineno=line)
    made = nodes.FilterBlock(loop.body, _filter(None, KEEP, line, [round_]), lineno=line)
    return [
        nodes.Assign(nodes.Name(_ROUND, "store", lineno=line), recalled, lineno=line),
        nodes.If(_filter(round_, IS_KNOWN, line), [known], [], [made], lineno=line),
    ]


def _filter(node: nodes.Expr | None, name: str, line: int, args: Sequence[nodes.Expr] = ()) -> nodes.Filter:
    return nodes.Filter(node, name, [*args], [], None, None, lineno=line)


def _pure_macros(template: nodes.Template) -> dict[str, list[nodes.Expr]]:
    """The macros that do nothing but write text, and the inputs of each; one may call those before it."""
    pure: dict[str, list[nodes.Expr]] = {}
    macros = [*template.find_all(nodes.Macro)]
    taken = Counter(macro.name for macro in macros)
    taken.update(name.name for name in template.find_all(nodes.Name) if name.ctx != "load")
    for macro in macros:
        inputs = _Inputs(pure)
        names = {argument.name for argument in macro.args}
        if taken[macro.name] == 1 and inputs.read([*macro.defaults, *macro.body], names):
            pure[macro.name] = inputs.found
    return pure


class _Inputs:
    """Collects the inputs of a body."""

    def __init__(self, macros: dict[str, list[nodes.Expr]]) -> None:
        self.found: list[nodes.Expr] = []
        self._macros = macros

    def read(self, body: Sequence[nodes.Node], own: set[str]) -> bool:
        """False if the body is not pure. `own` are the names that it is given, and those that it sets."""
        inside = [node for part in body for node in (part, *part.find_all(nodes.Node))]
        if not all(type(node) in _PURE and self._is_pure(node) for node in inside):
            return False
        stored = {node.name for node in inside if isinstance(node, nodes.Name) and node.ctx != "load"}
        for name in sorted(stored - own):  # it may be read before it is set
            self.found.append(nodes.Name(name, "load", lineno=body[0].lineno))
        for node in body:
            self._collect(node, own | stored)
        return True

    def _is_pure(self, node: nodes.Node) -> bool:
        if isinstance(node, nodes.For) and not _is_plain(node):
            return False
        if isinstance(node, nodes.Assign | nodes.For) and not isinstance(node.target, nodes.Name | nodes.Tuple):
            return False
        if not isinstance(node, nodes.Call):
            return True
        is_method = isinstance(node.node, nodes.Getattr)
        is_known = isinstance(node.node, nodes.Name) and node.node.name in {*_PURE_CALLS, *self._macros}
        return (is_method or is_known) and node.dyn_args is None and node.dyn_kwargs is None

    def _collect(self, node: nodes.Node, own: set[str]) -> None:
        names = {one.name for one in _all(node, nodes.Name)}
        if isinstance(node, nodes.Call):
            self._collect_call(node, own)
        elif isinstance(node, nodes.For):
            self._collect(node.iter, own)
            for child in node.body:
                self._collect(child, own | {"loop"})  # its own
        elif _is_value(node) and not names & own and not any(_all(node, nodes.Call)):
            if names:
                self.found.append(node)
        else:
            for child in node.iter_child_nodes():
                self._collect(child, own)

    def _collect_call(self, node: nodes.Call, own: set[str]) -> None:
        if isinstance(node.node, nodes.Getattr):
            self._collect(node.node.node, own)
        elif isinstance(node.node, nodes.Name):
            self.found += self._macros.get(node.node.name, [])
        for argument in (*node.args, *(keyword.value for keyword in node.kwargs)):
            self._collect(argument, own)


def _is_value(node: nodes.Node) -> TypeGuard[nodes.Expr]:
    return isinstance(node, nodes.Expr) and not isinstance(node, nodes.Slice)


def _all(node: nodes.Node, kind: type[Any]) -> Iterator[Any]:
    if isinstance(node, kind):
        yield node
    yield from node.find_all(kind)
