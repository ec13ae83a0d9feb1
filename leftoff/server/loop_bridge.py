"""From the engine's thread to an event loop: one wake-up for all that was said meanwhile.

To wake a loop costs a system call, at which the engine's thread would lose the interpreter to the loop, just when the
next batch is to begin: so the loop is woken by a call that keeps it. And replies write faster than anybody reads: but
for what somebody waits for, letters that follow each other closely are opened together.
"""

import asyncio
import ctypes as C
import os
import weakref
from collections import deque
from collections.abc import Callable

Letter = Callable[[], None]

_CLOSELY_SECONDS = 0.015  # a screen shows no more

_write = C.PyDLL(None).write
_write.argtypes, _write.restype = (C.c_int, C.c_char_p, C.c_size_t), C.c_ssize_t


class Mailbox:
    """Letters are opened on the loop, in the order in which they were put in. Made on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)  # which holds this one: it must be able to go
        self._letters: deque[Letter] = deque()
        self._is_rung = False
        self._is_expected = False  # the loop looks by itself soon
        self._door, self._bell = os.pipe()
        for end in (self._door, self._bell):
            os.set_blocking(end, False)
            weakref.finalize(self, os.close, end)  # not before the last who might ring is gone
        loop.add_reader(self._door, self._answer)

    def put(self, letter: Letter, *, is_urgent: bool) -> None:
        """From any thread."""
        self._letters.append(letter)
        if not self._is_rung and (is_urgent or not self._is_expected):
            self._is_rung = True
            _write(self._bell, b"!", 1)

    def _answer(self) -> None:
        os.read(self._door, 1)
        self._is_rung = False  # before the letters are opened: one that comes from now on rings again
        self._open_all()
        if not self._is_expected:
            self._expect()

    def _look(self) -> None:
        if not self._letters:
            self._is_expected = False  # before the last look, for the same reason
        if self._letters:
            self._expect()
            self._open_all()

    def _expect(self) -> None:
        self._is_expected = True
        if (loop := self._loop()) is not None:
            loop.call_later(_CLOSELY_SECONDS, self._look)

    def _open_all(self) -> None:
        while self._letters:
            self._letters.popleft()()
