"""Limits what one rendering of a template may cost: CPU time, and characters of text or memory.

Code that may create a large value, or walk through one, charges the budget before it does.
"""

import re
import time
from collections.abc import Iterable, Iterator, MappingView, Set, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from typing import Any, TypeVar

from jinja2 import pass_context
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from leftoff.chat.work import checkpoint

Value = TypeVar("Value")

_TICKS_PER_CHECK = 32
_CHARACTERS_PER_CHECK = 1 << 20  # making much text takes time without ticks
_CONTAINER = 56  # an empty container takes the memory of so many characters
REFERENCE = 8  # and so does a reference in one
_MAX_DEPTH = 200  # of lists in lists: Python's own recursion ends soon after
_MAX_INTEGER = 1 << 64
_HIDDEN_WIDTH = re.compile(r"%[^a-zA-Z%]*(\*|\d{4})|%\(")  # names may hide a width behind them
_MAX_EXPONENT = 64
_DICT_ATTRIBUTES = frozenset(dir(dict))
_LOOP_VALUES = frozenset({"first", "index", "index0", "last", "length", "revindex", "revindex0"})
MAX_FIELD = 1000
_SCALARS = frozenset({str, int, float, bool, type(None)})


class LimitError(SecurityError):
    """The template took too long, or made too much."""


class Budget:
    """The budget of one rendering. Time is that of its thread, so that a busy machine makes no difference."""

    def __init__(self, seconds: float, characters: int, rounds: Any = None) -> None:  # noqa: ANN401
        """`rounds` is the `RoundMemo` of the rendering, if it has one."""
        self.rounds = rounds
        self._seconds = seconds
        self._characters = characters
        self._end = time.thread_time() + seconds
        self._left = characters
        self._next_check = characters - _CHARACTERS_PER_CHECK
        self._num_ticks = 0

    def tick(self) -> None:
        """Called in every round of a loop and for every call: checks the time now and then."""
        self._num_ticks += 1
        if self._num_ticks % _TICKS_PER_CHECK == 0:
            self._check_time()

    def charge(self, characters: int) -> None:
        self._left -= characters
        if self._left < self._next_check:
            if self._left < 0:
                raise LimitError(f"it made more than {self._characters:,} characters")
            self._next_check = self._left - _CHARACTERS_PER_CHECK
            self._check_time()

    def charge_deep(self, value: object, times: int = 1) -> int:
        """Charges for all that printing, comparing or hashing a value walks through. Returns how deep it is nested.

        A value that occurs twice is charged twice: `[x, x]` of `[x, x]`, and so on, is small and endless to print.
        """
        if type(value) is str:
            self.charge(times * (1 + len(value)))
            return 0
        outer, depth = [iter((value,))], 0  # what is left of the containers around the current value
        while outer:
            for part in outer[-1]:
                if type(part) in _SCALARS:
                    self.charge(times * (1 + len(part)) if type(part) is str else times)
                    continue
                self.charge(times * (1 + size_of(part)))
                inner = _parts(part)
                if inner is not None:
                    depth = max(depth, len(outer))
                    outer.append(inner)
                    break
            else:
                outer.pop()
            if depth > _MAX_DEPTH:
                raise LimitError(f"it uses lists or objects nested more than {_MAX_DEPTH} deep")
        return depth

    def charge_list(self, values: Iterable[object]) -> list[object]:
        """Makes a list, which can be read more than once."""
        if isinstance(values, Sized):
            self.charge(REFERENCE * len(values))
        return list(values)

    def _check_time(self) -> None:
        checkpoint()
        if time.thread_time() > self._end:
            raise LimitError(f"it ran for more than {self._seconds:g} seconds")


_budget: ContextVar[Budget] = ContextVar("budget")
current = _budget.get


@contextmanager
def spending(budget: Budget) -> Iterator[None]:
    """Charges all rendering in this block to `budget`."""
    token = _budget.set(budget)
    try:
        yield
    finally:
        _budget.reset(token)


def charge_result(budget: Budget, result: Any) -> Any:  # noqa: ANN401
    """Charges for the result of a filter, call or operator."""
    budget.charge(size_of(result))
    if isinstance(result, int) and not -_MAX_INTEGER <= result <= _MAX_INTEGER:
        raise LimitError("it computes with integers of more than 64 bits")
    return result


def charge_size(value: Value) -> Value:
    """Charges the size of a value to the budget of the current rendering, and passes it on."""
    current().charge(size_of(value))
    return value


def charge_walk(value: Value) -> Value:
    """Charges for walking through a container. Strings and numbers are free."""
    if type(value) not in _SCALARS and _parts(value) is not None:
        current().charge_deep(value)
    return value


def size_of(value: object) -> int:
    """The size of a value in characters, without what it refers to."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list | tuple | dict) or (type(value) not in _SCALARS and isinstance(value, Set | MappingView)):
        return _CONTAINER + REFERENCE * len(value)
    return 0


def _parts(value: object) -> Iterator[object] | None:
    """The values in a container; None for any other value."""
    if isinstance(value, dict):
        return chain(value.keys(), value.values())
    if isinstance(value, list | tuple | Set | MappingView) and isinstance(value, Iterable):
        return iter(value)
    if isinstance(value, Namespace):
        return iter((object.__getattribute__(value, "_Namespace__attrs"),))
    return None


# --- called by the code that Jinja compiles from a template


class BudgetedEnvironment(ImmutableSandboxedEnvironment):
    """The part of the sandbox that runs for every expression of a template."""

    intercepted_binops = frozenset({"+", "-", "*", "**", "%"})

    def __init__(self, **options: Any) -> None:  # noqa: ANN401
        super().__init__(**options)
        self.pieces = Pieces
        # Not a plain method: the compiled template calls it as the environment's attribute.
        self.concat = lambda pieces: "".join(_charged(pieces))  # type: ignore[method-assign]

    def getattr(self, obj: Any, attribute: str) -> Any:  # noqa: ANN401
        # The most frequent cases, without the exceptions that Jinja raises and catches on its way to the same result.
        if type(obj) is dict and attribute not in _DICT_ATTRIBUTES:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        if type(obj) is LoopContext and attribute in _LOOP_VALUES:
            return getattr(obj, attribute)
        if type(obj) is Namespace:
            is_there = not attribute.startswith("_") and hasattr(obj, attribute)
            return getattr(obj, attribute) if is_there else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401
        budget = current()
        if operator == "+" and type(left) is str and type(right) is str:
            budget.charge(2 * (len(left) + len(right)))
            return left + right
        _charge_operator(budget, operator, left, right)
        return charge_result(budget, super().call_binop(context, operator, left, right))


def tick(_: None) -> None:
    """Charges one step to the budget of the current rendering."""
    current().tick()


@pass_context
def charge_printed(_: Context, value: object) -> object:
    """Called for all values that are printed."""
    return value if type(value) is str else charge_walk(value)


class Pieces(list[str]):
    """The text of a macro or block while it is made."""

    def append(self, piece: str) -> None:
        current().charge(REFERENCE + len(piece))
        super().append(piece)

    def extend(self, pieces: Iterable[str]) -> None:
        super().extend(_charged(pieces))


def _charged(pieces: Iterable[str]) -> Iterator[str]:
    budget = current()
    for piece in pieces:
        budget.charge(REFERENCE + len(piece))
        yield piece


def _charge_operator(budget: Budget, operator: str, left: object, right: object) -> None:
    if operator == "*":
        for sequence, number in ((left, right), (right, left)):
            if isinstance(sequence, str | list | tuple) and isinstance(number, int):
                budget.charge(size_of(sequence) * max(0, number))
    elif operator == "**" and not (isinstance(right, int | float) and abs(right) <= _MAX_EXPONENT):
        raise LimitError("it raises a number to a power that is too large")
    elif operator == "%" and isinstance(left, str):
        if _HIDDEN_WIDTH.search(left):
            raise LimitError("it formats with a width that is too large, or by names")
        num_fields = left.count("%")
        budget.charge(MAX_FIELD * num_fields)
        budget.charge_deep(right, times=num_fields)
    else:
        budget.charge(size_of(left) + size_of(right))
