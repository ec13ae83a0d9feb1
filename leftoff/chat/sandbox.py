"""Runs a template that came with a file from anywhere: it reads what it is given, and ends.

A template can neither reach Python's insides nor change what it was given. Loops, macros and calls look at the clock;
whatever makes text larger pays for it from a budget. So a template that never ends, or that would fill the memory, is
stopped with an error.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from types import BuiltinMethodType
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from leftoff.chat.work import checkpoint

# What no chat template needs, and what grows by a number instead of by its input.
_REFUSED_FILTERS = (
    *("batch", "center", "filesizeformat", "format", "pprint"),
    *("random", "slice", "urlize", "wordwrap", "xmlattr"),
)
_LIST_METHODS = frozenset({"append", "extend", "insert", "pop"})
_WIDTH = re.compile(r"%[^a-zA-Z%]*(\*|\d{4})|\{[^{}]*:[^{}]*(\d{4}|\{)")
_DICT_ATTRIBUTES = frozenset(dir(dict))
_LARGEST_EXPONENT = 64
_TICKS = 32  # between two looks at the clock
_TICK = "tick!"  # no template can write this name


class LimitError(SecurityError):
    """The template took too long, or made too much."""


class Budget:
    """What one rendering may cost. Time is the thread's own, so that a busy machine makes no difference."""

    def __init__(self, seconds: float, characters: int) -> None:
        self._seconds = seconds
        self._characters = characters
        self._end = time.thread_time() + seconds
        self._left = characters
        self._ticks = 0

    def tick(self) -> None:
        self._ticks += 1
        if self._ticks % _TICKS == 0:
            checkpoint()
            if time.thread_time() > self._end:
                raise LimitError(f"it ran for more than {self._seconds:g} seconds")

    def charge(self, characters: int) -> None:
        self._left -= characters
        if self._left < 0:
            raise LimitError(f"it made more than {self._characters:,} characters")

    def charge_deep(self, value: object) -> None:
        """For all that stands inside of a value, however often, since printing it prints all that."""
        waiting = [value]
        while waiting:
            inner = waiting.pop()
            self.charge(1 + _weight(inner))
            if isinstance(inner, dict | list | tuple):
                self.tick()
            if isinstance(inner, dict):
                waiting += [*inner.keys(), *inner.values()]
            elif isinstance(inner, list | tuple):
                waiting += inner


_budget: ContextVar[Budget] = ContextVar("budget")


@contextmanager
def spending(budget: Budget) -> Iterator[None]:
    token = _budget.set(budget)
    try:
        yield
    finally:
        _budget.reset(token)


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja as chat templates expect it, on a budget. Render only inside of `spending`."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, **options: Any) -> None:  # noqa: ANN401
        # Not optimised: constants would be computed when the template is read, outside of any budget.
        super().__init__(optimized=False, finalize=_finalize, **options)
        del self.globals["lipsum"]
        for name in _REFUSED_FILTERS:
            del self.filters[name]
        for name, function in list(self.filters.items()):
            self.add_filter(name, function)
        self.filters[_TICK] = _tick
        # Not a plain method: the compiled template calls it as the environment's attribute.
        self.concat = _concat  # type: ignore[method-assign]

    def add_filter(self, name: str, function: Callable[..., Any]) -> None:
        self.filters[name] = _on_budget(name, function)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:  # noqa: ANN401
        # Some templates keep lists of their own. What they were given is a copy for those.
        return (type(obj) is list and attr in _LIST_METHODS) or super().is_safe_attribute(obj, attr, value)

    def getattr(self, obj: Any, attribute: str) -> Any:  # noqa: ANN401
        # Nearly all that templates ask for. The same answers as below, without an exception on the way to each.
        if type(obj) is dict and attribute in obj and attribute not in _DICT_ATTRIBUTES:
            return obj[attribute]
        if type(obj) is Namespace and not attribute.startswith("_") and hasattr(obj, attribute):
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401, N805
        budget = _budget.get()
        budget.tick()
        _charge_method(budget, __obj, args)
        result = super().call(__context, __obj, *args, **kwargs)
        budget.charge(_weight(result))
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401
        _budget.get().charge(_cost(operator, left, right))
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:  # noqa: ANN401
        wrapped = super().wrap_str_format(value)
        if wrapped is not None and _WIDTH.search(value.__self__):
            raise LimitError("it formats with a width that is too large")
        return wrapped

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        for block in template.find_all((nodes.For, nodes.Macro, nodes.CallBlock)):
            # A filter, because that is the quickest call there is.
            tick = nodes.Filter(nodes.Const(None), _TICK, [], [], None, None)
            block.body.insert(0, nodes.ExprStmt(tick, lineno=block.lineno))  # type: ignore[attr-defined]
        for concat in template.find_all(nodes.Concat):
            concat.nodes = [nodes.Filter(node, "string", [], [], None, None) for node in concat.nodes]
        return template.set_environment(self)  # type: ignore[return-value]


def _tick(_nothing: None) -> None:
    _budget.get().tick()


def _concat(pieces: Iterable[str]) -> str:
    budget, parts = _budget.get(), []
    for piece in pieces:
        budget.charge(len(piece))
        parts.append(piece)
    return "".join(parts)


@pass_context
def _finalize(_context: Context, value: object) -> object:
    """Called for everything that is printed."""
    if isinstance(value, list | tuple | dict):
        _budget.get().charge_deep(value)
    return value


def _on_budget(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        budget = _budget.get()
        budget.tick()
        values = [arg for arg in args if not isinstance(arg, Context | nodes.EvalContext | Sandbox)]
        if name in ("string", "tojson"):
            budget.charge_deep(values[0])
        elif name in _AMPLIFIED:
            budget.charge(_amplified(name, values[0], values[1:]))
        result = function(*args, **kwargs)
        budget.charge(_weight(result))
        return result

    return run


def _weight(value: object) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, list | tuple | dict):
        return 8 * len(value)
    return value.bit_length() >> 3 if isinstance(value, int) else 0


def _cost(operator: str, left: object, right: object) -> int:
    if operator == "*":
        for sequence, number in ((left, right), (right, left)):
            if isinstance(sequence, str | list | tuple) and isinstance(number, int):
                return _weight(sequence) * max(0, number)
    if operator == "**" and not (isinstance(right, int | float) and abs(right) <= _LARGEST_EXPONENT):
        raise LimitError("it raises a number to a power that is too large")
    if operator == "%" and isinstance(left, str) and _WIDTH.search(left):
        raise LimitError("it formats with a width that is too large")
    return _weight(left) + _weight(right)


_AMPLIFIED = frozenset({"replace", "join", "indent", "ljust", "rjust", "center", "zfill", "expandtabs", "translate"})


def _charge_method(budget: Budget, method: object, args: tuple[Any, ...]) -> None:
    """Before a string's method makes its result: afterwards would be too late for these."""
    if not isinstance(method, BuiltinMethodType) or method.__name__ not in _AMPLIFIED:
        return
    owner, name = method.__self__, method.__name__
    if isinstance(owner, str):
        swapped = (args[0], [owner]) if name == "join" and args else (owner, args)
        budget.charge(_amplified(name, *swapped))


def _amplified(name: str, value: Any, args: Any) -> int:  # noqa: ANN401
    """About as many characters as a method or filter of this name may make."""
    first = args[0] if args else ""
    if name == "replace":
        return str(value).count(str(first)) * len(str(args[1])) if len(args) > 1 else 0
    if name == "join":
        return len(str(first)) * len(value) if hasattr(value, "__len__") else 0
    if name == "translate":
        raise LimitError("it calls translate, which no chat template needs")
    width = int(first) if isinstance(first, int) else 8
    return width * (len(str(value)) if name in ("expandtabs", "indent") else 1)
