"""The filters and tests that templates may use, on the budget of the rendering.

Left out is what no chat template needs and what grows by a number instead of by its input.
"""

from collections.abc import Callable, Iterable, Iterator, Sized
from functools import wraps
from types import GeneratorType
from typing import Any, cast

from jinja2 import Environment, nodes, pass_environment
from jinja2.filters import FILTERS, do_indent, do_round, make_attrgetter
from jinja2.runtime import Context
from jinja2.tests import TESTS
from markupsafe import escape

from leftoff.chat.template.budget import Budget, LimitError, current, is_container, weight
from leftoff.chat.template.methods import replaced_cost

Function = Callable[..., Any]

_FILTERS = cast("dict[str, Function]", FILTERS)
_TESTS = cast("dict[str, Function]", TESTS)

# These look at a value without walking through it, or only as far as they are asked to.
_SHALLOW = (
    *("attr", "count", "d", "default", "first", "items", "last", "length", "list", "map", "reject", "rejectattr"),
    *("reverse", "select", "selectattr"),
)
_DEEP = (
    *("abs", "capitalize", "dictsort", "float", "groupby", "int", "lower", "max", "min", "sort", "string", "title"),
    *("trim", "truncate", "unique", "upper"),
)
_COMPARING = (
    *("eq", "==", "equalto", "ne", "!=", "lt", "<", "lessthan", "le", "<="),
    *("gt", ">", "greaterthan", "ge", ">="),
)
_WIDEST = 256
_MOST_DIGITS = 64
_LONGEST_CHAIN = 50
_LARGEST = 1 << 64


def filters() -> dict[str, Function]:
    known = {name: _FILTERS[name] for name in (*_SHALLOW, *_DEEP)}
    own: dict[str, Function] = {
        "e": _escape,
        "escape": _escape,
        "safe": _safe,
        "indent": _indent,
        "join": _join,
        "replace": _replace,
    }
    every: dict[str, Function] = {**known, **own, "round": _round, "sum": _sum}
    return {name: on_budget(function, is_deep=name not in _SHALLOW) for name, function in every.items()}


def tests() -> dict[str, Function]:
    compared = {name: _compared(_TESTS[name]) for name in _COMPARING}
    return {**_TESTS, **compared, "in": _is_in}


def on_budget(function: Function, *, is_deep: bool = True) -> Function:
    """A deep one may walk through everything inside of its arguments, and pays for that before."""
    is_list = function is _FILTERS["list"]

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        budget = current()
        budget.tick()
        for value in (*args, *kwargs.values()):
            if is_deep and not isinstance(value, Context | nodes.EvalContext | Environment):
                budget.charge_deep(value)
        if is_list and isinstance(args[0], Sized):
            budget.charge(8 * len(args[0]))
        result = function(*args, **kwargs)
        return Lazy(budget, result, args) if isinstance(result, GeneratorType) else checked(budget, result)

    return run


class Lazy:
    """What a filter makes one by one. Python goes through it at once, and may keep all of it."""

    def __init__(self, budget: Budget, values: Iterator[object], sources: Iterable[object]) -> None:
        self._budget = budget
        self._values = values
        depths = [source._depth for source in sources if isinstance(source, Lazy)]
        self._depth: int = 1 + max(depths, default=0)
        if self._depth > _LONGEST_CHAIN:
            raise LimitError(f"it chains more than {_LONGEST_CHAIN} filters")

    def __iter__(self) -> Iterator[object]:
        return self

    def __next__(self) -> object:
        self._budget.tick()
        self._budget.charge(8)
        return next(self._values)


def checked(budget: Budget, result: Any) -> Any:  # noqa: ANN401
    """What a call or an operator has made: weighed, and not too large."""
    budget.charge(weight(result))
    if isinstance(result, int) and not -_LARGEST <= result <= _LARGEST:
        raise LimitError("it computes with integers of more than 64 bits")
    return result


def _compared(test: Function) -> Function:
    def run(value: object, other: object) -> Any:  # noqa: ANN401
        if is_container(value) and is_container(other):
            current().charge_deep(value)
        return test(value, other)

    return run


def _is_in(value: object, values: Any) -> bool:  # noqa: ANN401
    if is_container(values):
        current().charge_deep(values)
    return value in values


def _safe(value: object) -> str:
    return str(value)  # Jinja's own would make a string with methods of its own


def _escape(value: object) -> str:
    text = str(value)
    current().charge(5 * len(text))
    return str(escape(text))


def _indent(value: object, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    text, size = str(value), len(width) if isinstance(width, str) else width
    if size > _WIDEST:
        raise LimitError(f"it indents by {size}: {_WIDEST} is the most")
    current().charge((1 + size) * (1 + len(text)))
    return do_indent(text, width, first, blank)


@pass_environment
def _join(environment: Environment, values: Iterable[object], d: str = "", attribute: str | int | None = None) -> str:
    budget = current()
    parts = budget.listed(values)
    if attribute is not None:
        parts = [*map(make_attrgetter(environment, attribute), parts)]
    budget.charge_deep(parts, times=2)
    budget.charge(len(str(d)) * len(parts))
    return str(d).join(map(str, parts))


def _replace(value: object, old: object, new: object, count: int | None = None) -> str:
    text = str(value)
    current().charge(replaced_cost(text, old, new))
    return text.replace(str(old), str(new), -1 if count is None else count)


def _round(value: float, precision: int = 0, method: Any = "common") -> float:  # noqa: ANN401
    if abs(precision) > _MOST_DIGITS:
        raise LimitError(f"it rounds to {precision} digits: {_MOST_DIGITS} is the most")
    return do_round(value, precision, method)


@pass_environment
def _sum(environment: Environment, values: Iterable[Any], attribute: str | int | None = None, start: Any = 0) -> Any:  # noqa: ANN401
    if not isinstance(start, int | float):
        raise LimitError("it sums what is no number")
    if attribute is not None:
        values = map(make_attrgetter(environment, attribute), values)
    return sum(values, start)
