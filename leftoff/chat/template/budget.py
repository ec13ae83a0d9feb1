"""What one rendering of a template may cost: time on its thread, and characters made.

Whatever could make a large value, or walk through one, pays here before it does. It knows sizes, not templates.
"""

import time
from collections.abc import Iterable, Iterator, MappingView, Set, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain

from jinja2.exceptions import SecurityError
from jinja2.utils import Namespace

from leftoff.chat.work import checkpoint

_TICKS = 32  # between two looks at the clock
_CHARACTERS_PER_LOOK = 1 << 20  # what is large takes long: the clock is looked at between such, too
_CONTAINER = 56  # as much memory as so many characters, even if it is empty
_REFERENCE = 8
_DEEPEST = 200  # levels of lists in lists; Python's own way down ends soon after
_SCALARS = frozenset({str, int, float, bool, type(None)})


class LimitError(SecurityError):
    """The template took too long, or made too much."""


class Budget:
    """Of one rendering. Time is the thread's own, so that a busy machine makes no difference."""

    def __init__(self, seconds: float, characters: int) -> None:
        self._seconds = seconds
        self._characters = characters
        self._end = time.thread_time() + seconds
        self._left = characters
        self._next_look = characters - _CHARACTERS_PER_LOOK
        self._ticks = 0

    def tick(self) -> None:
        self._ticks += 1
        if self._ticks % _TICKS == 0:
            self._look()

    def charge(self, characters: int) -> None:
        self._left -= characters
        if self._left < self._next_look:
            if self._left < 0:
                raise LimitError(f"it made more than {self._characters:,} characters")
            self._next_look = self._left - _CHARACTERS_PER_LOOK
            self._look()

    def charge_deep(self, value: object, times: int = 1) -> int:
        """For all that stands inside of a value, however often: so much is walked through to print or compare it.

        Returns how many levels there are.
        """
        if type(value) in _SCALARS:
            self.charge(times * (1 + weight(value)))
            return 0
        way, deepest = [iter((value,))], 0  # the way: from the outermost container to the one that is looked at
        while way:
            parts = self._charge_up_to_a_container(way[-1], times)
            if parts is None:
                way.pop()
                continue
            way.append(parts)
            deepest = max(deepest, len(way) - 1)
            if deepest > _DEEPEST:
                raise LimitError(f"it uses lists or objects nested more than {_DEEPEST} deep")
        return deepest

    def _charge_up_to_a_container(self, values: Iterator[object], times: int) -> Iterator[object] | None:
        """Returns its parts; None if there is no more."""
        for value in values:
            if type(value) is str:
                self.charge(times * (1 + len(value)))
            elif type(value) in _SCALARS:
                self.charge(times)
            else:
                self.charge(times * (1 + weight(value)))
                parts = _parts(value)
                if parts is not None:
                    return parts
        return None

    def listed(self, values: Iterable[object]) -> list[object]:
        """What may be read only once, as a list."""
        if isinstance(values, Sized):
            self.charge(_REFERENCE * len(values))
        return list(values)

    def _look(self) -> None:
        checkpoint()
        if time.thread_time() > self._end:
            raise LimitError(f"it ran for more than {self._seconds:g} seconds")


_budget: ContextVar[Budget] = ContextVar("budget")
current = _budget.get


@contextmanager
def spending(budget: Budget) -> Iterator[None]:
    token = _budget.set(budget)
    try:
        yield
    finally:
        _budget.reset(token)


def weight(value: object) -> int:
    """Of a value itself, without what it refers to."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list | tuple | dict) or (type(value) not in _SCALARS and isinstance(value, Set | MappingView)):
        return _CONTAINER + _REFERENCE * len(value)
    return 0


def is_container(value: object) -> bool:
    return type(value) not in _SCALARS and _parts(value) is not None


def _parts(value: object) -> Iterator[object] | None:
    """What is printed with a value, one level down; None if that is nothing but itself."""
    if isinstance(value, dict):
        return chain(value.keys(), value.values())
    if isinstance(value, list | tuple | Set | MappingView) and isinstance(value, Iterable):
        return iter(value)
    if isinstance(value, Namespace):
        return iter((object.__getattribute__(value, "_Namespace__attrs"),))
    return None
