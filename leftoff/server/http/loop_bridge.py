"""Calls from the engine's thread to an event loop."""

import asyncio
import ctypes as C
import os
import weakref
from collections import deque
from collections.abc import Callable
from weakref import WeakKeyDictionary

_COLLECT_SECONDS = 0.03  # text that grows so often seems to flow, and every write takes a core from the engine
_write = C.PyDLL(None).write  # keeps the interpreter's lock, unlike os.write
_write.argtypes, _write.restype = (C.c_int, C.c_char_p, C.c_size_t), C.c_ssize_t


class LoopBridge:
    """Makes calls of the engine's thread on one event loop, in order. Must be created on the loop.

    `loop.call_soon_threadsafe` makes a system call that releases the interpreter's lock: the engine's thread would lose
    it to the loop just when the next batch is to begin. Here a pipe wakes the loop, by a `write` that keeps the lock.
    Tokens come faster than anybody reads, so calls that are not urgent are collected, and made a little later.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)  # the loop refers to this object, and must still be collected
        self._calls: deque[Callable[[], None]] = deque()
        self._is_woken = False
        self._is_scheduled = False  # the loop will look for calls by itself soon
        self._read_end, self._write_end = os.pipe()
        for end in (self._read_end, self._write_end):
            os.set_blocking(end, False)
            weakref.finalize(self, os.close, end)  # not before the last user of the bridge is gone
        loop.add_reader(self._read_end, self._on_wake)

    def put(self, call: Callable[[], None], *, is_urgent: bool) -> None:
        """Has the loop make a call. Any thread may ask for that.

        Once the loop is closed, calls are made where they are put: replies still end.
        """
        self._calls.append(call)
        loop = self._loop()
        if loop is None or loop.is_closed():
            self._make_calls()
        elif not self._is_woken and (is_urgent or not self._is_scheduled):
            self._is_woken = True
            _write(self._write_end, b"!", 1)

    def _on_wake(self) -> None:
        os.read(self._read_end, 1)
        self._is_woken = False  # before the calls are made: one that is put from now on wakes the loop again
        self._make_calls()
        if not self._is_scheduled:
            self._schedule()

    def _on_schedule(self) -> None:
        if not self._calls:
            self._is_scheduled = False  # before the last look, for the same reason
        if self._calls:
            self._schedule()
            self._make_calls()

    def _schedule(self) -> None:
        self._is_scheduled = True
        if (loop := self._loop()) is not None:
            loop.call_later(_COLLECT_SECONDS, self._on_schedule)

    def _make_calls(self) -> None:
        while self._calls:
            self._calls.popleft()()


_bridges: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopBridge] = WeakKeyDictionary()


def loop_bridge() -> LoopBridge:
    """The bridge to the running event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _bridges:
        _bridges[loop] = LoopBridge(loop)
    return _bridges[loop]
