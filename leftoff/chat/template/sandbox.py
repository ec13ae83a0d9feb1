"""Runs templates that came with a model file from anywhere: they read what they are given, and end.

Jinja's sandbox keeps a template from Python's internals and from changing its arguments. It limits neither time nor
memory, but for the length of a `range`. So loops, macros and calls check the time here, and all that makes text larger
or walks through a large value is charged to a budget: a template that would never end, or fill the memory, is stopped.
"""

import re
from collections.abc import Callable
from functools import lru_cache, wraps
from string import Formatter
from types import BuiltinMethodType
from typing import Any, cast

from jinja2 import Environment, nodes, pass_context, pass_environment, pass_eval_context
from jinja2.filters import FILTERS, do_indent, do_join, do_round, do_sum
from jinja2.runtime import BlockReference, Context, LoopContext, Macro, TemplateReference, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.tests import TESTS
from jinja2.utils import Namespace
from markupsafe import escape

from leftoff.chat.template.budget import REFERENCE, Budget, LimitError, current, size_of
from leftoff.chat.template.charges import CHARGING_FILTERS, Charges, charge_walk

Function = Callable[..., Any]

_LIST_CHANGES = frozenset({"append", "extend", "insert", "pop"})  # some templates build lists of their own
_READABLE = (str, list, tuple, dict, Namespace, LoopContext, Macro, BlockReference, TemplateReference, Undefined)
_UNCHARGED = frozenset({"encode", "maketrans", "translate"})  # methods whose results are larger than they look
_DICT_ATTRIBUTES = frozenset(dir(dict))
_MISSING = object()
_MAX_MISSING_KEYS = 256  # remembered: to make an `Undefined` takes longer than all else of a look-up
_MAX_EXPONENT = 64
_MAX_DIGITS = 64
_MAX_FIELD = 1000
_WIDE_FIELD = re.compile(r"\d{4}|\{")
_HIDDEN_WIDTH = re.compile(r"%[^a-zA-Z%]*(\*|\d{4})|%\(")  # names may hide a width behind them
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_PIECE = 64  # a string cut out of another takes the memory of so many characters, besides its own
_STEPS_PER_CHARACTER = 16  # of a search: so many take as long as making a character

# Filters that no chat template needs are left out, and so are those whose output grows by a number in the template.
# These do not walk through a value.
_SHALLOW_FILTERS = (
    *("attr", "count", "d", "default", "first", "items", "last", "length", "list", "map", "reject", "rejectattr"),
    *("reverse", "select", "selectattr"),
)
_DEEP_FILTERS = (
    *("abs", "capitalize", "dictsort", "float", "groupby", "int", "lower", "max", "min", "sort", "string", "title"),
    *("trim", "truncate", "unique", "upper"),
)
_COMPARING_TESTS = (
    *("eq", "==", "equalto", "ne", "!=", "lt", "<", "lessthan", "le", "<=", "in"),
    *("gt", ">", "greaterthan", "ge", ">="),
)


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja as chat templates expect it. Renders only inside a `spending` block.

    A template that `changes_lists` must be given copies of its arguments.
    """

    intercepted_binops = frozenset({"-", "*", "**", "%"})

    def __init__(self, *, changes_lists: bool, **options: Any) -> None:  # noqa: ANN401
        # Not optimised: constants would be computed when the template is parsed, outside of any budget.
        super().__init__(optimized=False, finalize=_printed, **options)
        self._changes_lists = changes_lists
        self._missing_key = lru_cache(_MAX_MISSING_KEYS)(lambda name: self.undefined(obj={}, name=name))
        del self.globals["lipsum"], self.globals["cycler"]
        known = cast("dict[str, Function]", FILTERS)
        self.filters = {name: _budgeted(known[name], is_deep=False) for name in _SHALLOW_FILTERS}
        self.filters |= {name: _budgeted(known[name]) for name in _DEEP_FILTERS}
        self.filters |= {name: _budgeted(function) for name, function in _OWN_FILTERS.items()}
        self.filters |= CHARGING_FILTERS
        tests = cast("dict[str, Function]", TESTS)
        self.tests = {**tests, **{name: _walking(tests[name]) for name in _COMPARING_TESTS}}

    def add_filter(self, name: str, function: Function) -> None:
        """Adds a filter that charges for its work itself."""
        self.filters[name] = _budgeted(function, is_deep=False)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:  # noqa: ANN401
        if attr in _LIST_CHANGES and isinstance(obj, list):
            return self._changes_lists
        return isinstance(obj, _READABLE) and attr not in _UNCHARGED and super().is_safe_attribute(obj, attr, value)

    def getattr(self, obj: Any, attribute: str) -> Any:  # noqa: ANN401
        # The most frequent cases, without the exceptions and checks that Jinja needs on its way to the same result.
        if type(obj) is dict and attribute not in _DICT_ATTRIBUTES:
            return obj[attribute] if attribute in obj else self._missing_key(attribute)
        if type(obj) in (Namespace, LoopContext) and not attribute.startswith("_"):
            value = getattr(obj, attribute, _MISSING)
            return value if value is not _MISSING else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401
        budget = current()
        if operator == "*":
            for sequence, number in ((left, right), (right, left)):
                if isinstance(sequence, str | list | tuple) and isinstance(number, int):
                    budget.charge(size_of(sequence) * max(0, number))
        elif operator == "**" and not (isinstance(right, int | float) and abs(right) <= _MAX_EXPONENT):
            raise LimitError("it raises a number to a power that is too large")
        elif operator == "%" and isinstance(left, str):
            if _HIDDEN_WIDTH.search(left):
                raise LimitError("it formats with a width that is too large, or by names")
            _charge_fields(left.count("%"), right)
        return budget.made(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401, N805
        if not callable(__obj):  # Jinja's own error would print it
            raise TypeError(f"{type(__obj).__name__!r} object is not callable")
        budget = current()
        budget.tick(REFERENCE * len(args))
        given = [*args]
        if isinstance(__obj, BuiltinMethodType):
            given = [*map(budget.listed, args)]
            _charge_method(budget, __obj, given, kwargs)
        for arg in given:
            if isinstance(arg, tuple):  # a macro's `varargs` may nest tuples, as a literal may
                budget.charge_walk(arg)
        return budget.made(super().call(__context, __obj, *given, **kwargs))

    def wrap_str_format(self, value: Any) -> Function | None:  # noqa: ANN401
        formatted = super().wrap_str_format(value)
        if formatted is None:
            return None

        def run(*args: Any, **kwargs: Any) -> str:  # noqa: ANN401
            specs = [spec for _, name, spec, _ in Formatter().parse(value.__self__) if name is not None]
            if any(_WIDE_FIELD.search(spec or "") for spec in specs):
                raise LimitError("it formats with a width that is too large")
            _charge_fields(len(specs), (args, kwargs))
            return str(formatted(*args, **kwargs))

        return run

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        Charges().visit(template)
        return template.set_environment(self)  # type: ignore[return-value]


@pass_context
def _printed(_: Context, value: object) -> object:
    """Charges for a value that is printed, and returns it."""
    if type(value) is str:
        current().charge(REFERENCE + len(value))
    else:
        current().charge_walk(value)
    return value


def _charge_fields(num_fields: int, values: object) -> None:
    """Charges for filling the fields of a text, each of which may show all of the values."""
    current().charge(_MAX_FIELD * num_fields)
    current().charge_walk(values, times=2 * num_fields)


# --- methods


def _charge_method(budget: Budget, method: BuiltinMethodType, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Charges before the call: one of `ljust` could fill the memory, one of `rfind` could take days."""
    owner, name = method.__self__, method.__name__
    if not isinstance(owner, str):
        budget.charge_walk((owner, args) if name in ("count", "index") else args)
    elif name == "join" and args:
        budget.charge_walk(args[0])
        budget.charge(len(owner) * len(args[0]))
    elif name == "replace":
        budget.charge(_replaced_size(owner, *args[:2]))
    elif name in _COSTS:
        budget.charge(_COSTS[name](owner, args[0] if args else kwargs.get("sep", kwargs.get("tabsize"))))


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
    """The cost of a search from the end, where Python compares letter by letter at every position."""
    return len(text) * len(sought) // _STEPS_PER_CHARACTER if isinstance(sought, str) else 0


_COSTS: dict[str, Callable[[str, object], int]] = {  # of a string and the first argument
    **dict.fromkeys(("ljust", "rjust", "center", "zfill"), _padded_size),
    "expandtabs": _tabs_size,
    "split": _split_size,
    "rsplit": lambda text, separator: _split_size(text, separator) + _search_cost(text, separator),
    "splitlines": _lines_size,
    **dict.fromkeys(("rfind", "rindex", "rpartition"), _search_cost),
}


# --- filters and tests


def _budgeted(function: Function, *, is_deep: bool = True) -> Function:
    """Charges for what a filter makes, and before that for walking through its arguments if it `is_deep`."""

    @wraps(function)  # with the attributes by which Jinja knows that it wants a context or an environment
    def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        budget = current()
        budget.tick()
        given = [*map(budget.listed, args)]
        for value in (*given, *kwargs.values()) if is_deep else ():
            budget.charge_walk(value)
        return budget.made(function(*given, **kwargs))

    return run


def _walking(test: Function) -> Function:
    def run(*args: object) -> Any:  # noqa: ANN401
        return test(*map(charge_walk, args))

    return run


def _indent(value: object, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    text = str(value)
    current().charge((len(width) if isinstance(width, str) else width) * (1 + len(text)))
    return do_indent(text, width, first, blank)


@pass_eval_context
def _join(context: nodes.EvalContext, values: Any, d: str = "", attribute: str | int | None = None) -> str:  # noqa: ANN401
    current().charge(len(str(d)) * len(values))
    return str(do_join(context, values, d, attribute))


def _replace(value: object, old: object, new: object, count: int | None = None) -> str:
    text = str(value)
    current().charge(_replaced_size(text, old, new))
    return text.replace(str(old), str(new), -1 if count is None else count)


def _round(value: float, precision: int = 0, method: Any = "common") -> float:  # noqa: ANN401
    if abs(precision) > _MAX_DIGITS:
        raise LimitError(f"it rounds to {precision} digits: {_MAX_DIGITS} is the most")
    return do_round(value, precision, method)


@pass_environment
def _sum(environment: Environment, values: Any, attribute: str | int | None = None, start: Any = 0) -> Any:  # noqa: ANN401
    if not isinstance(start, int | float):
        raise LimitError("it sums what is no number")
    return do_sum(environment, values, attribute, start)


_OWN_FILTERS: dict[str, Function] = {
    # Not Jinja's `Markup`, whose methods are not charged.
    **dict.fromkeys(("e", "escape"), lambda value: str(escape(str(value)))),
    "safe": str,
    "indent": _indent,
    "join": _join,
    "replace": _replace,
    "round": _round,
    "sum": _sum,
}
