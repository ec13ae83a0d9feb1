"""Limits what one rendering of a template may cost: CPU time, and characters of text or memory.

Code that walks through a value, or may make one far larger than those it is made from, charges the budget before it
does. Any other value is charged when it is made.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.utils import Namespace

from leftoff.chat.work import checkpoint

_TICKS_PER_CHECK = 32
_CHARACTERS_PER_CHECK = 1 << 20  # making much text takes time without ticks
_CONTAINER = 56  # characters that take as much memory as an empty container
REFERENCE = 8  # characters that take as much memory as a reference in a container
_MAX_DEPTH = 200  # of lists in lists: Python's own recursion ends soon after
_MAX_INTEGER = 1 << 64
_CONTAINERS: Any = (list, tuple, dict, *map(type, ({}.keys(), {}.values(), {}.items())))
SCALARS = frozenset({str, int, float, bool, type(None)})


class LimitError(SecurityError):
    """The template took too long, or made too much."""


class Budget:
    """The budget of one rendering. Time is that of its thread, so that a busy machine makes no difference."""

    def __init__(self, seconds: float, characters: int) -> None:
        self._seconds = seconds
        self._characters = characters
        self._end = time.thread_time() + seconds
        self._left = characters
        self._next_check = characters - _CHARACTERS_PER_CHECK
        self._num_ticks = 0

    def tick(self, characters: int = 0) -> None:
        """Called in every round of a loop and for every call: checks the time now and then."""
        self._num_ticks += 1
        if self._num_ticks % _TICKS_PER_CHECK == 0:
            self._check_time()
        if characters:
            self.charge(characters)

    def charge(self, characters: int) -> None:
        self._left -= characters
        if self._left < self._next_check:
            if self._left < 0:
                raise LimitError(f"it made more than {self._characters:,} characters")
            self._next_check = self._left - _CHARACTERS_PER_CHECK
            self._check_time()

    def charge_walk(self, value: object, times: int = 1, depth: int = 0) -> int:
        """Charges for all that printing, comparing or hashing a value walks through. Returns how deep it is nested.

        A value that occurs twice is charged twice: `[x, x]` of `[x, x]`, and so on, is small and endless to print.
        """
        if type(value) is str:
            self.charge(times * (1 + len(value)))
            return depth
        if depth > _MAX_DEPTH:
            raise LimitError(f"it uses lists or objects nested more than {_MAX_DEPTH} deep")
        self.charge(times * (1 + size_of(value)))
        deepest = depth
        for part in _parts(value):
            if type(part) in SCALARS:
                self.charge(times * (1 + size_of(part)))
            else:
                deepest = max(deepest, self.charge_walk(part, times, depth + 1))
        return deepest

    def made(self, value: Any) -> Any:  # noqa: ANN401
        """Charges for a value that was just made, without what it refers to; a list takes the place of an iterator."""
        if type(value) is str:
            self.charge(len(value))
            return value
        if isinstance(value, int) and not -_MAX_INTEGER <= value <= _MAX_INTEGER:
            raise LimitError("it computes with integers of more than 64 bits")
        value = self.listed(value)
        self.charge(size_of(value))
        return value

    def listed(self, value: Any) -> Any:  # noqa: ANN401
        """A list in the place of an iterator, whose size nobody knows and which can be read only once."""
        if not hasattr(value, "__next__"):
            return value
        found = []
        for item in value:
            self.tick(REFERENCE)
            found.append(item)
        return found

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


def size_of(value: object) -> int:
    """The size of a value in characters, without what it refers to."""
    if isinstance(value, str):
        return len(value)
    return _CONTAINER + REFERENCE * len(value) if isinstance(value, _CONTAINERS) else 0


def _parts(value: object) -> Iterable[object]:
    """The values in a container; none for any other value."""
    if isinstance(value, dict):
        return chain(value.keys(), value.values())
    if isinstance(value, Namespace):
        return (object.__getattribute__(value, "_Namespace__attrs"),)
    return value if isinstance(value, _CONTAINERS) else ()
