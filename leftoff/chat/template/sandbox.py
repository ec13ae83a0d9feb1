"""Runs templates that came with a model file from anywhere: they read what they are given, and end.

A template can neither reach Python's internals nor change its arguments: it sees the attributes listed here, and no
others. Loops, macros and calls check the time; whatever makes text larger, or walks through a large value, is charged
to a budget. So a template that would never end, or fill the memory, is stopped.
"""

import re
from collections.abc import Callable
from types import BuiltinMethodType
from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import TemplateAssertionError
from jinja2.runtime import BlockReference, Context, LoopContext, Macro, TemplateReference, Undefined
from jinja2.sandbox import SandboxedFormatter
from jinja2.utils import Cycler
from jinja2.visitor import NodeTransformer

from leftoff.chat.template.budget import (
    MAX_FIELD,
    REFERENCE,
    BudgetedEnvironment,
    LimitError,
    charge_printed,
    charge_result,
    charge_size,
    charge_walk,
    current,
    tick,
)
from leftoff.chat.template.filters import budgeted, charge_method, filters, tests
from leftoff.chat.template.loops import FILTERS as ROUND_FILTERS
from leftoff.chat.template.loops import remember_rounds

_WIDE_FIELD = re.compile(r"\d{4}")

_LIST_CHANGES = frozenset({"append", "extend", "insert", "pop"})  # some templates build lists of their own
_ALLOWED: dict[type, frozenset[str]] = {
    str: frozenset(
        (
            *("capitalize", "casefold", "center", "count", "endswith", "expandtabs", "find", "format", "format_map"),
            *("index", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "islower", "isnumeric", "isspace"),
            *("istitle", "isupper", "join", "ljust", "lower", "lstrip", "partition", "removeprefix", "removesuffix"),
            *("replace", "rfind", "rindex", "rjust", "rpartition", "rsplit", "rstrip", "split", "splitlines"),
            *("startswith", "strip", "swapcase", "title", "upper", "zfill"),
        )
    ),
    list: frozenset({"copy", "count", "index"}),
    tuple: frozenset({"count", "index", "grouper", "list"}),  # the last two are what `groupby` returns
    dict: frozenset({"copy", "get", "items", "keys", "values"}),
    LoopContext: frozenset(
        (
            *("cycle", "depth", "depth0", "first", "index", "index0", "last", "length", "nextitem", "previtem"),
            *("revindex", "revindex0"),
        )
    ),
    Cycler: frozenset({"current", "next", "reset"}),
    Macro: frozenset({"arguments", "name"}),
    BlockReference: frozenset({"super"}),
}
_SELF_GUARDED = (Undefined, TemplateReference)  # the one has no attributes, the other only the template's blocks


class _Code(CodeGenerator):
    def buffer(self, frame: Frame) -> None:
        frame.buffer = self.temporary_identifier()
        self.writeline(f"{frame.buffer} = environment.pieces()")


class Sandbox(BudgetedEnvironment):
    """Jinja as chat templates expect it. Renders only inside a `spending` block.

    A template that `changes_lists` must be given copies of its arguments. If it `remembers`, rounds of its loops that
    are known are not run again; `has_rounds` tells whether it has such loops.
    """

    code_generator_class = _Code

    def __init__(self, *, changes_lists: bool, remembers: bool = False, **options: Any) -> None:  # noqa: ANN401
        # Not optimised: constants would be computed when the template is parsed, outside of any budget.
        super().__init__(optimized=False, finalize=charge_printed, **options)
        self._changes_lists = changes_lists
        self._remembers = remembers
        self.has_rounds = False
        del self.globals["lipsum"]
        self.filters.clear()
        self.filters.update({**filters(), _TICK: tick, _SIZE: charge_size, _WALK: charge_walk, **ROUND_FILTERS})
        self.tests.update(tests())

    def add_filter(self, name: str, function: Callable[..., Any]) -> None:
        self.filters[name] = budgeted(function)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:  # noqa: ANN401, ARG002
        if attr in _LIST_CHANGES and isinstance(obj, list):
            return self._changes_lists
        if isinstance(obj, _SELF_GUARDED):
            return not attr.startswith("_")
        allowed = next((_ALLOWED[kind] for kind in type(obj).__mro__ if kind in _ALLOWED), ())
        return attr in allowed

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401, N805
        if not callable(__obj):
            raise TypeError(f"{type(__obj).__name__!r} object is not callable")
        budget = current()
        budget.tick()
        given = [*args]
        if isinstance(__obj, BuiltinMethodType):
            charge_method(budget, __obj, given, kwargs)
        else:
            budget.charge(REFERENCE * len(given))
            for arg in given:
                if isinstance(arg, tuple):  # a macro's `varargs` may nest tuples, as a literal may
                    budget.charge_deep(arg)
        return charge_result(budget, super().call(__context, __obj, *given, **kwargs))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:  # noqa: ANN401
        if super().wrap_str_format(value) is None:
            return None
        layout, takes_mapping = str(value.__self__), value.__name__ == "format_map"

        def run(*args: Any, **kwargs: Any) -> str:  # noqa: ANN401
            fields, named = ((), args[0]) if takes_mapping and args else (args, kwargs)
            return _Formatter(self).vformat(layout, fields, named)

        return run

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        _Charges().visit(template)
        self.has_rounds = self._remembers and remember_rounds(template)
        return template.set_environment(self)  # type: ignore[return-value]


# Filters, because those are the quickest calls there are. No template can write these names.
_TICK, _SIZE, _WALK = "tick!", "size!", "walk!"


def _filtered(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None)


def _is_constant(node: nodes.Expr) -> bool:
    if isinstance(node, nodes.List | nodes.Tuple):
        return all(isinstance(item, nodes.Const) for item in node.items)
    return isinstance(node, nodes.Const)


class _Charges(NodeTransformer):
    """Wraps the nodes that Jinja compiles to plain Python in filters that charge for them."""

    def _visit_block(self, node: nodes.For | nodes.Macro | nodes.CallBlock) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_filtered(nodes.Const(None), _TICK), lineno=node.lineno))
        return node

    visit_For = visit_Macro = visit_CallBlock = _visit_block  # noqa: N815

    def _visit_literal(self, node: nodes.List | nodes.Dict) -> nodes.Node:
        return _filtered(self.generic_visit(node), _SIZE)

    visit_List = visit_Dict = _visit_literal  # noqa: N815

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        if node.ctx != "load" or _is_constant(node):
            return self.generic_visit(node)
        # Hashing a tuple walks through all that is inside, and overflows Python's stack where that is deep.
        return _filtered(self.generic_visit(node), _WALK)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        operands: list[nodes.Compare | nodes.Operand] = [node, *node.ops]
        changing = [operand for operand in operands if not _is_constant(operand.expr)]
        self.generic_visit(node)
        if len(changing) > 1:  # comparing with a constant takes no longer than the constant is
            for operand in changing:
                operand.expr = _filtered(operand.expr, _WALK)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        is_slice = isinstance(node.arg, nodes.Slice)
        changed = self.generic_visit(node)
        return _filtered(changed, _SIZE) if is_slice else changed

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.nodes = [_filtered(part, "string") for part in node.nodes]
        return node

    def visit_ScopedEvalContextModifier(self, node: nodes.ScopedEvalContextModifier) -> nodes.Node:  # noqa: N802
        raise TemplateAssertionError("autoescape is for HTML", node.lineno)


class _Formatter(SandboxedFormatter):
    """`str.format`, charged field by field."""

    def format_field(self, value: Any, format_spec: str) -> str:  # noqa: ANN401
        if _WIDE_FIELD.search(format_spec):
            raise LimitError("it formats with a width that is too large")
        current().charge_deep(value, times=2)
        current().charge(MAX_FIELD if format_spec else 0)
        return str(super().format_field(value, format_spec))

    def convert_field(self, value: Any, conversion: Any) -> Any:  # noqa: ANN401
        current().charge_deep(value)
        return super().convert_field(value, conversion)
