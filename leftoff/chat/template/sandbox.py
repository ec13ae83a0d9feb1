"""Runs a template that came with a file from anywhere: it reads what it is given, and ends.

A template can neither reach Python's insides nor change what it was given: it sees the attributes that `methods.py`
lists, and no others. Loops, macros and calls look at the clock; whatever makes text larger, or walks through a large
value, pays for it from a budget. So a template that never ends, or that would fill the memory, is stopped.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from types import BuiltinMethodType
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.utils import Namespace

from leftoff.chat.template.budget import Budget, LimitError, current, is_container, spending, weight
from leftoff.chat.template.codegen import BudgetedCode
from leftoff.chat.template.filters import checked, filters, on_budget, tests
from leftoff.chat.template.methods import LIST_CHANGES, charge_method, is_allowed

__all__ = ["Budget", "LimitError", "Sandbox", "spending"]

_WIDTH = re.compile(r"%[^a-zA-Z%]*(\*|\d{4})|%\(")  # names may hide a width behind them
_WIDE_FIELD = re.compile(r"\d{4}")
_LONGEST_FIELD = 1000
_DICT_ATTRIBUTES = frozenset(dir(dict))
_LARGEST_EXPONENT = 64
_TICK = "tick!"  # no template can write this name


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja as chat templates expect it, on a budget. Render only inside of `spending`.

    A template that `changes_lists` must be given copies.
    """

    intercepted_binops = frozenset({"+", "-", "*", "**", "%"})
    code_generator_class = BudgetedCode

    def __init__(self, *, changes_lists: bool, **options: Any) -> None:  # noqa: ANN401
        # Not optimised: constants would be computed when the template is read, outside of any budget.
        super().__init__(optimized=False, finalize=_finalize, **options)
        self._changes_lists = changes_lists
        del self.globals["lipsum"]
        self.filters.clear()
        self.filters.update({**filters(), _TICK: _tick})
        self.tests.update(tests())
        # Not a plain method: the compiled template calls it as the environment's attribute.
        self.concat = _concat  # type: ignore[method-assign]

    def add_filter(self, name: str, function: Callable[..., Any]) -> None:
        self.filters[name] = on_budget(function)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:  # noqa: ANN401, ARG002
        if attr in LIST_CHANGES and isinstance(obj, list):
            return self._changes_lists
        return is_allowed(obj, attr)

    def getattr(self, obj: Any, attribute: str) -> Any:  # noqa: ANN401
        # Nearly all that templates ask for. The same answers as below, without an exception on the way to each.
        if type(obj) is dict and attribute in obj and attribute not in _DICT_ATTRIBUTES:
            return obj[attribute]
        if type(obj) is Namespace:
            is_there = not attribute.startswith("_") and hasattr(obj, attribute)
            return getattr(obj, attribute) if is_there else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401, N805
        if not callable(__obj):
            raise TypeError(f"{type(__obj).__name__!r} object is not callable")
        budget = current()
        budget.tick()
        given = [*args]
        if isinstance(__obj, BuiltinMethodType):
            charge_method(budget, __obj, given, kwargs)
        elif given:
            _charge_arguments(budget, given)
        return checked(budget, super().call(__context, __obj, *given, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401
        budget = current()
        _charge_operator(budget, operator, left, right)
        return checked(budget, super().call_binop(context, operator, left, right))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:  # noqa: ANN401
        if super().wrap_str_format(value) is None:
            return None
        layout, takes_mapping = str(value.__self__), value.__name__ == "format_map"

        def run(*args: Any, **kwargs: Any) -> str:  # noqa: ANN401
            fields, named = ((), args[0]) if takes_mapping and args else (args, kwargs)
            return _Formatter(self).vformat(layout, fields, named)

        return run

    # --- called by the code that `BudgetedCode` makes

    def pieces(self) -> "_Pieces":
        return _Pieces()

    def built(self, value: Any) -> Any:  # noqa: ANN401
        current().charge(weight(value))
        return value

    weighed = built

    def walked(self, value: Any) -> Any:  # noqa: ANN401
        if is_container(value):
            current().charge_deep(value)
        return value

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        for block in template.find_all((nodes.For, nodes.Macro, nodes.CallBlock)):
            # A filter, because that is the quickest call there is.
            tick = nodes.Filter(nodes.Const(None), _TICK, [], [], None, None)
            block.body.insert(0, nodes.ExprStmt(tick, lineno=block.lineno))  # type: ignore[attr-defined]
        for concat in template.find_all(nodes.Concat):
            concat.nodes = [nodes.Filter(node, "string", [], [], None, None) for node in concat.nodes]
        return template.set_environment(self)  # type: ignore[return-value]


class _Pieces(list[str]):
    """The text of a macro or a block while it is made."""

    def append(self, piece: str) -> None:
        current().charge(8 + len(piece))
        super().append(piece)

    def extend(self, pieces: Iterable[str]) -> None:
        for piece in pieces:
            self.append(piece)


class _Formatter(SandboxedFormatter):
    """`str.format`, field by field."""

    def format_field(self, value: Any, format_spec: str) -> str:  # noqa: ANN401
        if _WIDE_FIELD.search(format_spec):
            raise LimitError("it formats with a width that is too large")
        current().charge_deep(value, times=2)
        current().charge(_LONGEST_FIELD if format_spec else 0)
        return str(super().format_field(value, format_spec))

    def convert_field(self, value: Any, conversion: Any) -> Any:  # noqa: ANN401
        current().charge_deep(value)
        return super().convert_field(value, conversion)


def _tick(_nothing: None) -> None:
    current().tick()


def _concat(pieces: Iterable[str]) -> str:
    budget, parts = current(), []
    for piece in pieces:
        budget.charge(8 + len(piece))
        parts.append(piece)
    return "".join(parts)


@pass_context
def _finalize(_context: Context, value: object) -> object:
    """Called for everything that is printed."""
    if is_container(value):
        current().charge_deep(value)
    return value


def _charge_arguments(budget: Budget, args: Sequence[object]) -> None:
    """A macro may keep its arguments in a tuple of tuples: like one that is written down, it is walked through."""
    budget.charge(8 * len(args))
    for arg in args:
        if isinstance(arg, tuple):
            budget.charge_deep(arg)


def _charge_operator(budget: Budget, operator: str, left: object, right: object) -> None:
    if operator == "*":
        for sequence, number in ((left, right), (right, left)):
            if isinstance(sequence, str | list | tuple) and isinstance(number, int):
                budget.charge(weight(sequence) * max(0, number))
    elif operator == "**" and not (isinstance(right, int | float) and abs(right) <= _LARGEST_EXPONENT):
        raise LimitError("it raises a number to a power that is too large")
    elif operator == "%" and isinstance(left, str):
        if _WIDTH.search(left):
            raise LimitError("it formats with a width that is too large, or by names")
        num_fields = left.count("%")
        budget.charge(_LONGEST_FIELD * num_fields)
        budget.charge_deep(right, times=num_fields)
    else:
        budget.charge(weight(left) + weight(right))
