"""From the engine's thread to an event loop: one wake-up for all that was said meanwhile.

To wake a loop costs a system call, at which the engine's thread may lose the interpreter to the loop. A step that
gives a token to each of eight replies should pay that once.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress

Letter = Callable[[], None]

_CLOSELY_SECONDS = 0.006


class Mailbox:
    """Letters are opened on the loop, in the order in which they were put in."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._letters: deque[Letter] = deque()
        self._is_called = False

    def put(self, letter: Letter) -> None:
        """From any thread."""
        self._letters.append(letter)
        if not self._is_called:
            self._is_called = True
            with suppress(RuntimeError):  # the loop is closed: nobody is listening any more
                self._loop.call_soon_threadsafe(self._open_all)

    def _open_all(self) -> None:
        """The first letter is opened at once; those that follow it closely wait to be opened together."""
        if not self._letters:
            self._is_called = False  # before the last look: a letter that comes from now on calls again
            if not self._letters:
                return
            self._is_called = True
        while self._letters:
            self._letters.popleft()()
        self._loop.call_later(_CLOSELY_SECONDS, self._open_all)
