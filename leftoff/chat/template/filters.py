"""The filters, tests and methods that templates may use, charged to the budget before they run.

Filters that no chat template needs are left out, and so are those whose output grows by a number in the template.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from types import BuiltinMethodType, GeneratorType
from typing import Any, cast

from jinja2 import Environment, nodes, pass_environment
from jinja2.filters import FILTERS, do_indent, do_round, make_attrgetter
from jinja2.runtime import Context
from jinja2.tests import TESTS
from markupsafe import escape

from leftoff.chat.template.budget import REFERENCE, Budget, LimitError, charge_result, charge_walk, current

Function = Callable[..., Any]

_FILTERS = cast("dict[str, Function]", FILTERS)
_TESTS = cast("dict[str, Function]", TESTS)

# These do not walk through a value.
_SHALLOW = (
    *("attr", "count", "d", "default", "first", "items", "last", "length", "list", "map", "reject", "rejectattr"),
    *("reverse", "select", "selectattr"),
)
_DEEP = (
    *("abs", "capitalize", "dictsort", "float", "groupby", "int", "lower", "max", "min", "sort", "string", "title"),
    *("trim", "truncate", "unique", "upper"),
)
_COMPARING_TESTS = (
    *("eq", "==", "equalto", "ne", "!=", "lt", "<", "lessthan", "le", "<=", "in"),
    *("gt", ">", "greaterthan", "ge", ">="),
)
_MAX_INDENT = 256
_MAX_DIGITS = 64
_MAX_CHAINED = 50
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_PIECE = 64  # a string cut out of another takes the memory of so many characters, besides its own
_STEPS_PER_CHARACTER = 16  # of a search: so many take as long as making a character


def filters() -> dict[str, Function]:
    """The filters that templates may use, each charging its work to the budget."""
    own: dict[str, Function] = {
        "e": _escape,
        "escape": _escape,
        "safe": _safe,
        "indent": _indent,
        "join": _join,
        "list": lambda values: current().charge_list(values),
        "replace": _replace,
        "round": _round,
        "sum": _sum,
    }
    every = {name: _FILTERS[name] for name in (*_SHALLOW, *_DEEP)} | own
    return {name: budgeted(function, is_deep=name not in _SHALLOW) for name, function in every.items()}


def tests() -> dict[str, Function]:
    """The tests that templates may use."""
    return {**_TESTS, **{name: _walking(_TESTS[name]) for name in _COMPARING_TESTS}}


def _walking(test: Function) -> Function:
    def run(*args: object) -> Any:  # noqa: ANN401
        return test(*map(charge_walk, args))

    return run


def budgeted(function: Function, *, is_deep: bool = True) -> Function:
    """Charges for what a filter makes, and before that for walking through its arguments if it `is_deep`."""

    @wraps(function)  # with the attributes by which Jinja knows that it wants a context or an environment
    def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        budget = current()
        budget.tick()
        for value in (*args, *kwargs.values()) if is_deep else ():
            if not isinstance(value, Context | nodes.EvalContext | Environment):
                budget.charge_deep(value)
        result = function(*args, **kwargs)
        return _Lazy(budget, result, args) if isinstance(result, GeneratorType) else charge_result(budget, result)

    return run


class _Lazy:
    """The results of a filter such as `map`, charged one by one as they are used."""

    def __init__(self, budget: Budget, values: Iterator[object], sources: Iterable[object]) -> None:
        self._budget = budget
        self._values = values
        self._depth: int = 1 + max((source._depth for source in sources if isinstance(source, _Lazy)), default=0)
        if self._depth > _MAX_CHAINED:
            raise LimitError(f"it chains more than {_MAX_CHAINED} filters")

    def __iter__(self) -> Iterator[object]:
        return self

    def __next__(self) -> object:
        self._budget.tick()
        self._budget.charge(REFERENCE)
        return next(self._values)


def _safe(value: object) -> str:
    return str(value)  # Jinja's makes a `Markup`, whose methods are not charged


def _escape(value: object) -> str:
    text = str(value)
    current().charge(5 * len(text))
    return str(escape(text))


def _indent(value: object, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    text, size = str(value), len(width) if isinstance(width, str) else width
    if size > _MAX_INDENT:
        raise LimitError(f"it indents by {size}: {_MAX_INDENT} is the most")
    current().charge((1 + size) * (1 + len(text)))
    return do_indent(text, width, first, blank)


@pass_environment
def _join(environment: Environment, values: Iterable[object], d: str = "", attribute: str | int | None = None) -> str:
    budget = current()
    parts = budget.charge_list(values)
    if attribute is not None:
        parts = [*map(make_attrgetter(environment, attribute), parts)]
    budget.charge_deep(parts, times=2)
    budget.charge(len(str(d)) * len(parts))
    return str(d).join(map(str, parts))


def _replace(value: object, old: object, new: object, count: int | None = None) -> str:
    text = str(value)
    current().charge(_replaced_size(text, old, new))
    return text.replace(str(old), str(new), -1 if count is None else count)


def _round(value: float, precision: int = 0, method: Any = "common") -> float:  # noqa: ANN401
    if abs(precision) > _MAX_DIGITS:
        raise LimitError(f"it rounds to {precision} digits: {_MAX_DIGITS} is the most")
    return do_round(value, precision, method)


@pass_environment
def _sum(environment: Environment, values: Iterable[Any], attribute: str | int | None = None, start: Any = 0) -> Any:  # noqa: ANN401
    if not isinstance(start, int | float):
        raise LimitError("it sums what is no number")
    if attribute is not None:
        values = map(make_attrgetter(environment, attribute), values)
    return sum(values, start)


# --- methods


def charge_method(budget: Budget, method: BuiltinMethodType, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Charges before the call: one of `ljust` could fill the memory, one of `rfind` could take days.

    Puts a list into `args` in the place of an iterator, which can be read only once.
    """
    owner, name = method.__self__, method.__name__
    if isinstance(owner, str):
        if name == "join" and args:
            args[0] = budget.charge_list(args[0])
            budget.charge_deep(args[0])
            budget.charge(len(owner) * len(args[0]))
        elif name == "replace":
            budget.charge(_replaced_size(owner, *args[:2]))
        elif name in _COSTS:
            budget.charge(_COSTS[name](owner, args[0] if args else kwargs.get("sep", kwargs.get("tabsize"))))
    elif name in ("append", "insert"):
        budget.charge_deep(args)
    elif name == "extend" and args:
        args[0] = budget.charge_list(args[0])
    elif name in ("count", "index"):
        budget.charge_deep(owner)


def _replaced_size(text: str, old: object = "", new: object = "") -> int:
    return len(text) + text.count(str(old)) * len(str(new))


def _padded_size(text: str, width: object) -> int:
    return max(len(text), width) if isinstance(width, int) else 0


def _tabs_size(text: str, tab_size: object) -> int:
    return len(text) + text.count("\t") * (tab_size if isinstance(tab_size, int) else 8)


def _split_size(text: str, separator: object) -> int:
    num_pieces = text.count(separator) if isinstance(separator, str) and separator else len(text) // 4
    return len(text) + _PIECE * num_pieces


def _lines_size(text: str, _: object) -> int:
    return len(text) + _PIECE * sum(map(text.count, _LINE_ENDS))


def _search_cost(text: str, sought: object) -> int:
    """From the end, Python compares letter by letter at every position."""
    return len(text) * len(sought) // _STEPS_PER_CHARACTER if isinstance(sought, str) else 0


_COSTS: dict[str, Callable[[str, object], int]] = {  # of a string and the first argument
    **dict.fromkeys(("ljust", "rjust", "center", "zfill"), _padded_size),
    "expandtabs": _tabs_size,
    "split": _split_size,
    "rsplit": lambda text, separator: _split_size(text, separator) + _search_cost(text, separator),
    "splitlines": _lines_size,
    **dict.fromkeys(("rfind", "rindex", "rpartition"), _search_cost),
    # A letter may become three.
    **dict.fromkeys(("upper", "lower", "title", "capitalize", "casefold", "swapcase"), lambda text, _: 2 * len(text)),
}
